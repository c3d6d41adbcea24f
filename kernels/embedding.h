// Embedding lookup. Decoding bf16 is exact and f32 is copied, so one definition serves every host
// backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "schema/error.h"
#include "schema/formats/bf16.h"
#include "schema/host_device.h"
#include "schema/matrix_view.h"

namespace k3 {

// table[row, col]; the format is bf16 or f32.
K3_HOST_DEVICE inline float exact_embedding_value(const MatrixView& table, int64_t row,
                                                  int64_t col) {
  const std::byte* codes = table.codes + row * table.row_stride_bytes;
  return table.format == Format::kBf16 ? decode_bf16(reinterpret_cast<const uint16_t*>(codes)[col])
                                       : reinterpret_cast<const float*>(codes)[col];
}

namespace reference {
// y[t, :] = row ids[t] of the table; y is [ids, cols]. The caller has checked the ids.
inline void embed(const MatrixView& table, std::span<const int32_t> ids, float* y) {
  K3_CHECK(table.format == Format::kBf16 || table.format == Format::kF32);
  for (const int32_t id : ids) {
    K3_CHECK(id >= 0 && id < table.rows);
    for (int64_t c = 0; c < table.cols; ++c) *y++ = exact_embedding_value(table, id, c);
  }
}
}  // namespace reference

namespace cpu {
using reference::embed;
}  // namespace cpu

}  // namespace k3
