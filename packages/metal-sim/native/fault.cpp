// Signals of faulting kernels become events: the handler sends the OS thread to `land`, which leaves the threadgroup.
// So does the signal that says that a dispatch's time is over.
#include <signal.h>
#include <ucontext.h>

#include <mutex>

#include "runtime.h"

namespace metal_sim {

constinit thread_local Worker* worker_of_thread = nullptr;

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, kTimeSignal};
struct sigaction previous[std::size(kSignals)];
std::mutex guard_mutex;
int guards = 0;

void landing() { current_worker()->land(); }

void handle(int signal, siginfo_t* info, void* context) {
  auto* machine = &static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__APPLE__) && defined(__aarch64__)
  auto& pc = (*machine)->__ss.__pc;
  auto& sp = (*machine)->__ss.__sp;
#elif defined(__APPLE__)
  auto& pc = (*machine)->__ss.__rip;
  auto& sp = (*machine)->__ss.__rsp;
#elif defined(__aarch64__)
  auto& pc = machine->pc;
  auto& sp = machine->sp;
#else
  auto& pc = machine->gregs[REG_RIP];
  auto& sp = machine->gregs[REG_RSP];
#endif
  if (worker_of_thread && worker_of_thread->fault(signal, uintptr_t(info->si_addr), uintptr_t(pc))) {
    pc = decltype(+pc)(uintptr_t(&landing));
    // As after a call on x86-64: the stack pointer is 8 below alignment.
#if defined(__x86_64__)
    sp = decltype(+sp)(worker_of_thread->landing_top() - 8);
#else
    sp = decltype(+sp)(worker_of_thread->landing_top());
#endif
    return;
  }
  // The engine's own code is not interrupted; the signal comes again.
  if (signal == kTimeSignal && worker_of_thread) return;
  // Not a kernel's: whoever was here before decides. Returning repeats the fault.
  for (size_t i = 0; i < std::size(kSignals); ++i)
    if (kSignals[i] == signal) {
      if ((previous[i].sa_flags & SA_SIGINFO) && previous[i].sa_sigaction)
        previous[i].sa_sigaction(signal, info, context);
      else if (previous[i].sa_handler != SIG_DFL && previous[i].sa_handler != SIG_IGN)
        previous[i].sa_handler(signal);
      else if (signal != kTimeSignal)
        sigaction(signal, &previous[i], nullptr);
    }
}

}  // namespace

FaultGuard::FaultGuard() {
  std::lock_guard lock(guard_mutex);
  if (guards++) return;
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &previous[i]);
}

FaultGuard::~FaultGuard() {
  std::lock_guard lock(guard_mutex);
  if (--guards) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

WorkerScope::WorkerScope(Worker& mine) : stack_(64 * 1024) {
  worker_of_thread = &mine;
  stack_t stack{};
  stack.ss_sp = stack_.data(), stack.ss_size = stack_.size();
  sigaltstack(&stack, &before_);
}

WorkerScope::~WorkerScope() {
  sigaltstack(&before_, nullptr);
  worker_of_thread = nullptr;
}

void Worker::land() {
  report_fault();
  abandon();
}

}  // namespace metal_sim
