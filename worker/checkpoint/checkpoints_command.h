#pragma once

namespace sherd {

// The program `sherd checkpoints list|verify DIR [-o table|json]`, argv[0] being its name. Data
// goes to stdout, errors to stderr. Returns the exit code: 0; 1 when `verify` finds something
// damaged, or nothing is there; 2 for bad usage.
int CheckpointsMain(int argc, char** argv);

}  // namespace sherd
