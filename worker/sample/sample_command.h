#pragma once

namespace sherd {

// The program `sherd sample DIR [--prompt TEXT] [--tokens N] …`, argv[0] being its name. Text goes
// to stdout, errors to stderr. Returns the exit code: 0, 2 for bad usage, 1 for anything else.
int SampleMain(int argc, char** argv);

}  // namespace sherd
