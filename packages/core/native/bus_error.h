// What the system does when a mapped file has become shorter.
#pragma once

namespace mlxts {

// From now on the process says in one line why it ends when it reads a page that a mapped file has lost. The signal then
// does what it did before.
void explainBusErrors();

}  // namespace mlxts
