// Foundation over GCC's Objective-C runtime: reference counts, pools, strings, errors.
#include <Block.h>
#import <Foundation/Foundation.h>
#include <objc/message.h>
#include <objc/runtime.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "simulation.h"

namespace {

// Behind each object; constant strings have none.
struct Trailer {
  int references;
  uint64_t serial;
};

std::mutex mutex;
// Never destroyed: objects may go after static destructors have run.
auto& live = *new std::unordered_map<const void*, uint64_t>;
uint64_t lastSerial = 0;

thread_local std::vector<std::vector<id>> pools;

// Dead objects stay for a while as zombies, so that a message to one is noticed.
constexpr size_t kZombies = 4096;
auto& zombies = *new std::deque<id>;

void refuse(id object, SEL selector, ...) {
  const std::string name = std::string("`") + sel_getName(selector) + "`";
  const std::string type = class_getName(object_getClass(object));
  metal_framework::broken(type == "SimZombie" ? "a message " + name + " to an object that has been released"
                                              : type + " does not know " + name);
}

Trailer& trailer(id object) {
  const size_t size = (class_getInstanceSize(object_getClass(object)) + 7) & ~size_t(7);
  return *reinterpret_cast<Trailer*>(reinterpret_cast<char*>(object) + size);
}

// The runtime does not build or destroy C++ instance variables; clang emits a method for each.
void eachClass(id object, Class type, SEL selector, bool rootFirst) {
  if (!type) return;
  Class parent = class_getSuperclass(type);
  if (rootFirst) eachClass(object, parent, selector, rootFirst);
  Method own = class_getInstanceMethod(type, selector);
  Method inherited = parent ? class_getInstanceMethod(parent, selector) : nullptr;
  if (own && own != inherited) method_getImplementation(own)(object, selector);
  if (!rootFirst) eachClass(object, parent, selector, rootFirst);
}

}  // namespace

__attribute__((objc_root_class))
@interface SimZombie {
  Class isa;
}
@end
@implementation SimZombie
@end

namespace metal_framework {

bool alive(id object, uint64_t serial) {
  std::lock_guard lock(mutex);
  const auto found = live.find(static_cast<const void*>(object));
  return found != live.end() && found->second == serial;
}
void mustHavePool() {
  if (pools.empty()) broken("an object of Metal is released with no pool in place");
}
uint64_t serialOf(id object) { return trailer(object).serial; }
uint64_t liveObjects() {
  std::lock_guard lock(mutex);
  return live.size();
}

}  // namespace metal_framework

@implementation NSObject
+ (void)load {
  __objc_msg_forward2 = [](id, SEL) -> IMP { return reinterpret_cast<IMP>(reinterpret_cast<void*>(&refuse)); };
}
+ (id)alloc {
  id object = class_createInstance(self, sizeof(Trailer) + 8);
  eachClass(object, self, sel_registerName(".cxx_construct"), true);
  std::lock_guard lock(mutex);
  trailer(object) = {1, ++lastSerial};
  live[static_cast<const void*>(object)] = lastSerial;
  return object;
}
+ (id)new {
  return [[self alloc] init];
}
+ (Class)class {
  return self;
}
- (id)init {
  return self;
}
- (id)retain {
  __atomic_add_fetch(&trailer(self).references, 1, __ATOMIC_RELAXED);
  return self;
}
- (oneway void)release {
  const int left = __atomic_sub_fetch(&trailer(self).references, 1, __ATOMIC_ACQ_REL);
  if (left < 0) metal_framework::broken("an object is released more often than retained");
  if (left == 0) [self dealloc];
}
- (id)autorelease {
  [NSAutoreleasePool addObject:self];
  return self;
}
- (NSUInteger)retainCount {
  return NSUInteger(trailer(self).references);
}
- (void)dealloc {
  eachClass(self, object_getClass(self), sel_registerName(".cxx_destruct"), false);
  std::lock_guard lock(mutex);
  live.erase(static_cast<const void*>(self));
  object_setClass(self, objc_lookUpClass("SimZombie"));
  zombies.push_back(self);
  if (zombies.size() <= kZombies) return;
  object_dispose(zombies.front());
  zombies.pop_front();
}
- (BOOL)respondsToSelector:(SEL)selector {
  return class_respondsToSelector(object_getClass(self), selector);
}
- (NSString*)description {
  return [NSString stringWithUTF8String:class_getName(object_getClass(self))];
}
@end

@interface SimString : NSString {
 @public
  std::string text_;
}
@end

@implementation NSString
+ (id)stringWithUTF8String:(const char*)text {
  SimString* string = [[SimString alloc] init];
  string->text_ = text;
  return [string autorelease];
}
- (const char*)UTF8String {
  return "";
}
- (NSUInteger)length {
  return strlen([self UTF8String]);
}
- (NSString*)description {
  return self;
}
@end

@implementation SimString
- (const char*)UTF8String {
  return text_.c_str();
}
@end

@implementation NSConstantString
- (id)retain {
  return self;
}
- (oneway void)release {
}
- (id)autorelease {
  return self;
}
- (const char*)UTF8String {
  return text_;
}
@end

@interface SimError : NSError {
 @public
  NSInteger code_;
  NSString* domain_;
  NSString* text_;
}
@end

@implementation NSError
+ (id)errorWithDomain:(NSString*)domain code:(NSInteger)code userInfo:(NSDictionary*)info {
  SimError* error = [[SimError alloc] init];
  error->code_ = code;
  error->domain_ = [domain retain];
  error->text_ = [(info ? (NSString*)(id)info : domain) retain];
  return [error autorelease];
}
- (NSInteger)code {
  return 0;
}
- (NSString*)domain {
  return @"";
}
- (NSString*)localizedDescription {
  return @"";
}
@end

@implementation SimError
- (NSInteger)code {
  return code_;
}
- (NSString*)domain {
  return domain_;
}
- (NSString*)localizedDescription {
  return text_;
}
- (void)dealloc {
  [domain_ release];
  [text_ release];
  [super dealloc];
}
@end

@interface SimURL : NSURL {
 @public
  NSString* path_;
}
@end

@implementation NSURL
+ (NSURL*)fileURLWithPath:(NSString*)path {
  SimURL* url = [[SimURL alloc] init];
  url->path_ = [path retain];
  return [url autorelease];
}
- (NSString*)path {
  return nil;
}
@end

@implementation SimURL
- (NSString*)path {
  return path_;
}
- (void)dealloc {
  [path_ release];
  [super dealloc];
}
@end

@implementation NSAutoreleasePool
- (id)init {
  pools.emplace_back();
  return self;
}
- (void)drain {
  [self release];
}
- (void)dealloc {
  const auto objects = std::move(pools.back());
  pools.pop_back();
  for (auto object = objects.rbegin(); object != objects.rend(); ++object) [*object release];
  [super dealloc];
}
+ (void)addObject:(id)object {
  if (pools.empty()) metal_framework::broken("an object is autoreleased with no pool in place");
  pools.back().push_back(object);
}
@end

Class NSClassFromString(NSString* name) { return objc_lookUpClass([name UTF8String]); }
