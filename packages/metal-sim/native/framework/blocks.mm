// The blocks runtime, after the published block ABI: Debian's does not retain captured objects.
#include <Block.h>
#include <objc/objc.h>

#include <cstdlib>
#include <cstring>

@protocol Retained
- (id)retain;
- (oneway void)release;
@end

namespace {

struct Descriptor {
  unsigned long reserved, size;
  void (*copy)(void*, const void*);
  void (*dispose)(const void*);
};
struct Layout {
  void* isa;
  int flags, reserved;
  void (*invoke)(void*, ...);
  Descriptor* descriptor;
};
enum { kCountMask = 0xfffe, kOne = 2, kHeap = 1 << 24, kHasCopy = 1 << 25, kGlobal = 1 << 28 };
enum { kObject = 3, kBlock = 7, kFromCaller = 128 };

}  // namespace

extern "C" {

void *_NSConcreteStackBlock[32], *_NSConcreteGlobalBlock[32], *_NSConcreteMallocBlock[32];

void* _Block_copy(const void* block) {
  auto* from = static_cast<Layout*>(const_cast<void*>(block));
  if (!from || (from->flags & kGlobal)) return from;
  if (from->flags & kHeap) {
    __atomic_add_fetch(&from->flags, kOne, __ATOMIC_RELAXED);
    return from;
  }
  auto* to = static_cast<Layout*>(malloc(from->descriptor->size));
  memcpy(to, from, from->descriptor->size);
  to->flags = (to->flags & ~kCountMask) | kHeap | kOne;
  to->isa = _NSConcreteMallocBlock;
  if (to->flags & kHasCopy) to->descriptor->copy(to, from);
  return to;
}

void _Block_release(const void* block) {
  auto* layout = static_cast<Layout*>(const_cast<void*>(block));
  if (!layout || !(layout->flags & kHeap)) return;
  if ((__atomic_sub_fetch(&layout->flags, kOne, __ATOMIC_ACQ_REL) & kCountMask) != 0) return;
  if (layout->flags & kHasCopy) layout->descriptor->dispose(layout);
  free(layout);
}

// Only objects and blocks are captured here: no __block variables (which need more).
void _Block_object_assign(void* destination, const void* source, int flags) {
  const void* kept = source;
  if (!(flags & kFromCaller) && (flags & 15) == kObject) kept = [(id<Retained>)(id)source retain];
  if (!(flags & kFromCaller) && (flags & 15) == kBlock) kept = _Block_copy(source);
  *static_cast<const void**>(destination) = kept;
}

void _Block_object_dispose(const void* object, int flags) {
  if (flags & kFromCaller) return;
  if ((flags & 15) == kObject) [(id<Retained>)(id)object release];
  if ((flags & 15) == kBlock) _Block_release(object);
}

}  // extern "C"
