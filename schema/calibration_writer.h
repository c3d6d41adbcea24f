// Writes a .k3cal file extent by extent, as layers are finished.
//
// The file grows under another name until its index is known, so what stands under the final name
// is always whole. A capture that was killed goes on behind the last extent that its journal knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "schema/calibration.h"
#include "schema/output_file.h"

namespace k3 {

class CalibrationWriter {
 public:
  // Opens the unfinished file at `path`, or creates it; bytes from `end_bytes` on are cut off.
  // Throws Error, also when the file is shorter than that.
  explicit CalibrationWriter(const std::string& path, int64_t end_bytes = kExtentAlignment);

  // Appends what compress_sums or compress_steps made. Throws Error.
  Extent add(std::span<const std::byte> stored);

  int64_t end_bytes() const { return end_bytes_; }  // where the next extent will lie
  // Returns when all extents, and the padding that the next one starts behind, are on disk.
  void sync() const;

  // Writes index and frame, brings all to disk and renames the file to `final_path`. `index` must
  // name all extents that were added. Throws Error.
  void finish(const CalibrationIndex& index, const std::string& final_path);

 private:
  OutputFile file_;
  int64_t end_bytes_;
};

// Writes the sum of two calibrations of the same model, as if their texts had been captured
// together. Where a channel's steps agree the sums are those of a joint capture to the bit;
// elsewhere the finer one is brought to the coarser step in double. Holds one piece of a matrix in
// memory. Throws Error when a file is damaged, the models or inputs differ, a document is in both,
// or `path` cannot be written.
void merge_calibrations(const CalibrationReader& first, const CalibrationReader& second,
                        const std::string& path);

}  // namespace k3
