#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/element_range.h"

namespace sherd {

// Of a tensor as a matrix: a vector, and a single value, are of one column.
int64_t ColumnsOf(const std::vector<int64_t>& shape);

// What of a tensor an entry of a shard file holds, in the entry's name: "NAME" all of it,
// "NAME[begin:end]" a run of its elements, "NAME[:,begin:end]" a block of its columns, and
// "NAME[:,begin:end][begin:end]" a run of the elements of such a block, both in row-major order.
struct PieceName {
  std::string tensor;
  // Nothing: all columns.
  std::optional<ElementRange> columns;
  // Nothing: all elements of the columns.
  std::optional<ElementRange> elements;
};

std::string FormatPieceName(const PieceName& name);
// Takes the end that is no range into the tensor's name. Believes no number: the ranges may be
// empty, reversed or beyond any tensor.
PieceName ParsePieceName(absl::string_view entry);

}  // namespace sherd
