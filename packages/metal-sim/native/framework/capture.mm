// Captures: a text file that names what ran while one was running, by the labels that a .gputrace would show.
#include <unistd.h>

#include <cstdio>

#include "objects.h"

using namespace metal_framework;

@implementation MTLCaptureDescriptor
- (id)captureObject {
  return captureObject_;
}
- (void)setCaptureObject:(id)object {
  id old = captureObject_;
  captureObject_ = [object retain];
  [old release];
}
- (MTLCaptureDestination)destination {
  return destination_;
}
- (void)setDestination:(MTLCaptureDestination)destination {
  destination_ = destination;
}
- (NSURL*)outputURL {
  return outputURL_;
}
- (void)setOutputURL:(NSURL*)url {
  NSURL* old = outputURL_;
  outputURL_ = [url retain];
  [old release];
}
- (void)dealloc {
  [captureObject_ release];
  [outputURL_ release];
  [super dealloc];
}
@end

namespace {

struct Capture {
  id device = nil;
  std::string path, lines;
};
std::mutex mutex;
std::optional<Capture> running;

}  // namespace

void metal_framework::capture(id device, const std::string& line) {
  std::lock_guard lock(mutex);
  if (running && running->device == device) running->lines += line + "\n";
}

@implementation MTLCaptureManager
+ (MTLCaptureManager*)sharedCaptureManager {
  return [[[MTLCaptureManager alloc] init] autorelease];
}
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor error:(NSError* __autoreleasing*)error {
  const char* path = [[[descriptor outputURL] path] UTF8String];
  must([descriptor captureObject] != nil && path, "a capture has no object or no URL");
  std::lock_guard lock(mutex);
  const char* refusal = nullptr;
  if (running || fault("no-capture")) refusal = "Capturing is not supported.";
  // The other destination is Xcode's window.
  if ([descriptor destination] != MTLCaptureDestinationGPUTraceDocument) refusal = "Capture destination not supported.";
  if (access(path, F_OK) == 0) refusal = "The output file already exists.";
  if (refusal) {
    if (error) *error = metal_framework::error("MTLCaptureErrorDomain", 1, refusal);
    return NO;
  }
  running = {[descriptor captureObject], path, ""};
  count(Count::captures);
  return YES;
}
- (void)stopCapture {
  std::lock_guard lock(mutex);
  must(running.has_value(), "a capture is stopped that has not been started");
  if (FILE* out = fopen(running->path.c_str(), "w")) {
    fwrite(running->lines.data(), 1, running->lines.size(), out);
    fclose(out);
  }
  running.reset();
}
@end
