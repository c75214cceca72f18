#include "bus_error.h"

#include <signal.h>
#include <unistd.h>

namespace mlxts {

namespace {

constexpr char kText[] =
    "mlxts: a mapped file has become shorter while it was in use (SIGBUS) - open files that change with map: false\n";

struct sigaction before;

// Only functions that a signal handler may call.
void explain(int signal, siginfo_t* info, void*) {
  const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
  static_cast<void>(written);
  sigaction(signal, &before, nullptr);
  // The instruction that has failed runs again and fails again; a signal that was sent does not come again by itself.
  if (info->si_code <= 0) raise(signal);
}

}  // namespace

void explainBusErrors() {
  static const bool once = [] {
    struct sigaction action = {};
    action.sa_sigaction = explain;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &before) == 0;
  }();
  static_cast<void>(once);
}

}  // namespace mlxts
