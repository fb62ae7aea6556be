#pragma once

namespace sherd {

// `sherd import` and `sherd export`: between folders of the common Python stack and checkpoints, on
// this machine. 2 for bad usage, which includes a folder or checkpoint that is not usable, 1 for
// anything else.
int ImportMain(int argc, char** argv);
int ExportMain(int argc, char** argv);

}  // namespace sherd
