#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/mapped_file.h"
#include "worker/data/token_file.h"

namespace sherd {

// One function a format, for OpenTokenFile, which has refused empty files. Errors as there.

// Bytes are tokens; a NUL byte is refused when it is read.
std::unique_ptr<TokenFile> OpenTextFile(MappedFile file);

// A JSON object a line; the bytes of its "text" are tokens.
absl::StatusOr<std::unique_ptr<TokenFile>> OpenJsonlFile(MappedFile file);

// nanoGPT: ids of 16 bits and nothing else.
absl::StatusOr<std::unique_ptr<TokenFile>> OpenTokensU16File(MappedFile file);

// llm.c: 256 numbers of 32 bits, then ids of 16 or 32 bits.
absl::StatusOr<std::unique_ptr<TokenFile>> OpenLlmcFile(MappedFile file);

// Megatron's IndexedDataset: `path`.idx and `path`.bin; `path` may end with either.
absl::StatusOr<std::unique_ptr<TokenFile>> OpenMegatronFile(const std::string& root,
                                                            const std::string& path);
// `path` without that ending.
std::string MegatronPrefix(const std::string& path);

}  // namespace sherd
