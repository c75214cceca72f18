// The two functions of the blocks runtime that host code may call; blocks.mm has them.
#pragma once
extern "C" {
void* _Block_copy(const void* block);
void _Block_release(const void* block);
}
#define Block_copy(...) ((__typeof(__VA_ARGS__))_Block_copy((const void*)(__VA_ARGS__)))
#define Block_release(...) _Block_release((const void*)(__VA_ARGS__))
