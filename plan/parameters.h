#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/element_range.h"
#include "plan/model_shape.h"
#include "plan/tensor_part.h"

namespace sherd {

enum class UnitKind { kEmbedding, kBlock, kHead };

// How a parameter starts. Normal values are a pure function of (seed, name, index in the tensor).
struct Initializer {
  enum class Kind { kNormal, kZeros, kOnes } kind = Kind::kZeros;
  double stddev = 0;
};

// Which part of a tensor a member of a tensor-parallel group holds. Tensors are matrices here; a
// vector is one of a single column.
struct TensorSlice {
  // Of the tensor as published.
  std::vector<int64_t> shape;
  // Ranges of the tensor's rows, one behind the other. What reaches beyond its last row is padding.
  std::vector<ElementRange> rows;
  ElementRange columns;

  int64_t tensor_rows() const { return shape.front(); }
  int64_t tensor_columns() const { return shape.size() == 1 ? 1 : shape.back(); }
};

// What a job makes of a parameter (plan/parameter_settings.h).
struct ParameterSettings {
  // It is not updated, and its gradient not counted.
  bool frozen = false;
  double weight_decay = 0;
  // Factor on the learning rate.
  double lr_scale = 1;
  friend bool operator==(const ParameterSettings&, const ParameterSettings&) = default;
};

struct Parameter {
  // As in the published checkpoints: "h.3.attn.c_attn.weight" of GPT-2,
  // "model.layers.3.self_attn.q_proj.weight" of Llama.
  std::string name;
  // What is stored: all of the tensor, or the rank's slice of it. Row-major. Linear weights are
  // (out, in).
  std::vector<int64_t> shape;
  int64_t elements = 0;
  TensorSlice slice;
  // Adjacent members of the tensor-parallel group, the first at a multiple of so many, that hold
  // the same slice and update it alike.
  int copies = 1;
  // Each of them computes a share of the gradient, and the shares are summed. Else each computes
  // all of it.
  bool partial_gradient = false;
  // Elements from the start of its unit's flat buffer.
  int64_t offset = 0;
  // Matrices decay; norms and biases do not.
  bool decays = false;
  Initializer init;
  ParameterSettings settings;
};

// The granule of sharding: its parameters lie one after another, without gaps, in one flat buffer.
struct Unit {
  UnitKind kind;
  std::string name;  // "embedding", "h.3" or "model.layers.3", "head"
  // Of a block; -1 else.
  int64_t layer = -1;
  std::vector<Parameter> parameters;
  int64_t elements = 0;
  // All parameters are: nobody needs its gradients.
  bool frozen = false;
};

// All units in forward order: the embedding, the blocks, the head.
struct Inventory {
  std::vector<Unit> units;
  int64_t elements = 0;
  // The head reads the token embedding of unit 0 instead of weights of its own.
  bool tied = false;
  // Of the units with something that is trained: backward ends there.
  int first_trained = 0;
  // Whose inventory it is.
  ModelPart part;
};

// Of the whole model, or of what a member of a tensor-parallel group holds: the units and their
// order are the same. `place` fits the shape (tensor_part.h).
Inventory BuildInventory(const ModelShape& shape, const TensorPlace& place = {});

// A run of a parameter's elements [begin, begin + count) that are those from `at` on of the block
// `columns` of the tensor's columns, in row-major order of that block.
struct SliceRun {
  int64_t begin = 0;
  int64_t count = 0;
  ElementRange columns;
  int64_t at = 0;
};
// What the parameter's elements [begin, end) are of the whole tensor, in order and without padding.
std::vector<SliceRun> RunsOf(const Parameter& parameter, int64_t begin, int64_t end);

}  // namespace sherd
