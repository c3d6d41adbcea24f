// A trunk tensor's bytes on their way into the pack, with what was tuned put in their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compiler/pack_writer.h"
#include "passes/model.h"

namespace k3 {

class TrunkExtentStream {
 public:
  // `tuning` is the model's; it may be null when the tensor is not tuned. All must outlive the
  // stream.
  TrunkExtentStream(const TrunkTensor& tensor, const TuningReader* tuning,
                    const PackWriter& writer);

  // The extent's next bytes as they are without tuning.
  void write(std::span<const std::byte> bytes);

  struct Hashes {
    uint64_t extent = 0;   // of what is in the pack
    uint64_t untuned = 0;  // of what write() was given
  };
  // All bytes must have been written. Throws Error for tuned values that no pack can hold.
  Hashes finish();

 private:
  void write_codes();
  void write_scales();
  void write_gain();

  const TrunkTensor& tensor_;
  const TuningReader* tuning_;
  ExtentStream stream_;
  Xxh3Stream untuned_;
  int64_t kept_bytes_ = 0;  // how many of the coming bytes stay as they are
};

}  // namespace k3
