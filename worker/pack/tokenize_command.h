#pragma once

namespace sherd {

// The program `sherd data tokenize --tokenizer PATH --out FILE FILES… [-o table|json]`, argv[0]
// being its last word. The summary goes to stdout, progress and errors to stderr. Returns the exit
// code: 0, 2 for bad usage, 1 for anything else.
int TokenizeMain(int argc, char** argv);

}  // namespace sherd
