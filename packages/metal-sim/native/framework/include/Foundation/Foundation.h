// The part of Foundation that Metal host code may use here, declared as Apple documents it. metal_api.test.ts compares
// what concerns Metal with published declarations.
#pragma once
#include <objc/objc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef double CFTimeInterval;
#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#define NS_ENUM(type, name) \
  enum name : type name;    \
  enum name : type
// In C++ a set of options is a plain integer.
#define NS_OPTIONS(type, name) \
  type name;                   \
  enum : type

@class NSString, NSDictionary, NSURL;

typedef struct _NSRange {
  NSUInteger location, length;
} NSRange;
static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
  NSRange range = {location, length};
  return range;
}

NS_ASSUME_NONNULL_BEGIN

@protocol NSObject
- (id)retain;
- (oneway void)release;
- (id)autorelease;
- (NSUInteger)retainCount;
- (BOOL)respondsToSelector:(SEL)selector;
@property(readonly, copy) NSString* description;
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject> {
  Class isa;
}
+ (instancetype)alloc;
+ (instancetype)new;
+ (Class)class;
- (instancetype)init;
- (void)dealloc;
@end

@interface NSString : NSObject
+ (nullable instancetype)stringWithUTF8String:(const char*)text;
@property(nullable, readonly) const char* UTF8String;
@property(readonly) NSUInteger length;
@end

// Three words, as clang lays constant strings out.
@interface NSConstantString : NSString {
 @public
  const char* text_;
  unsigned length_;
}
@end

@interface NSError : NSObject
+ (instancetype)errorWithDomain:(NSString*)domain code:(NSInteger)code userInfo:(nullable NSDictionary*)info;
@property(readonly) NSInteger code;
@property(readonly, copy) NSString* domain;
@property(readonly, copy) NSString* localizedDescription;
@end

@interface NSURL : NSObject
+ (NSURL*)fileURLWithPath:(NSString*)path;
@property(nullable, readonly, copy) NSString* path;
@end

// What @autoreleasepool becomes under GCC's runtime.
@interface NSAutoreleasePool : NSObject
- (void)drain;
+ (void)addObject:(id)object;
@end

extern "C" Class _Nullable NSClassFromString(NSString* name);

NS_ASSUME_NONNULL_END
