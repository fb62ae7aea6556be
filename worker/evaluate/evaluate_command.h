#pragma once

namespace sherd {

// The program `sherd eval CHECKPOINT DATA…`. Returns the exit code.
int EvaluateMain(int argc, char** argv);

}  // namespace sherd
