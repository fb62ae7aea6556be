#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/model_shape.h"

namespace sherd {

enum class UnitKind { kEmbedding, kBlock, kHead };

// How a parameter starts. Normal values are a pure function of (seed, name, index in the tensor).
struct Initializer {
  enum class Kind { kNormal, kZeros, kOnes } kind = Kind::kZeros;
  double stddev = 0;
};

struct Parameter {
  // As in the published checkpoints: "h.3.attn.c_attn.weight" of GPT-2,
  // "model.layers.3.self_attn.q_proj.weight" of Llama.
  std::string name;
  // Row-major. Linear weights are (out, in).
  std::vector<int64_t> shape;
  int64_t elements = 0;
  // Elements from the start of its unit's flat buffer.
  int64_t offset = 0;
  // Matrices decay; norms and biases do not.
  bool decays = false;
  Initializer init;
};

// The granule of sharding: its parameters lie one after another, without gaps, in one flat buffer.
struct Unit {
  UnitKind kind;
  std::string name;  // "embedding", "h.3" or "model.layers.3", "head"
  // Of a block; -1 else.
  int64_t layer = -1;
  std::vector<Parameter> parameters;
  int64_t elements = 0;
};

// All units in forward order: the embedding, the blocks, the head.
struct Inventory {
  std::vector<Unit> units;
  int64_t elements = 0;
  // The head reads the token embedding of unit 0 instead of weights of its own.
  bool tied = false;
};

Inventory BuildInventory(const ModelShape& shape);

}  // namespace sherd
