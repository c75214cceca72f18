// clang names a personality for GCC's Objective-C runtime that ends the process on a C++ exception. Host code has no
// @try, so the C++ one is right.
extern "C" {
int __gxx_personality_v0(int, int, unsigned long, void*, void*);
__attribute__((visibility("hidden"))) int __gnu_objc_personality_v0(int version, int actions, unsigned long type,
                                                                    void* exception, void* context) {
  return __gxx_personality_v0(version, actions, type, exception, context);
}
}
