// A .k3teach file: what a model predicted for each token of a text, cut to its likeliest tokens,
// for distilling smaller models.
//
// It is a safetensors file, so that a training program needs no code of ours: any safetensors
// library, or ten lines of Python (tests/schema/read_teacher.py), reads it. Row i is the prediction
// after token i, that is of token i + 1 of the same document. With the log-sum-exp over the whole
// vocabulary beside them, logits are log-probabilities and what the cut left out is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace k3 {

struct Teacher {
  uint64_t model_payload_xxh3 = 0;
  uint64_t text_xxh3 = 0;  // CalibrationIndex::text_xxh3 of its texts
  int64_t vocab_size = 0;
  int64_t top_k = 0;

  std::vector<int32_t> token_ids = {};     // [tokens]
  std::vector<int32_t> document_ids = {};  // [tokens]: counted from 0, ascending
  std::vector<int32_t> top_ids = {};       // [tokens, top_k]: logits descending, then ids ascending
  std::vector<float> top_logits = {};      // [tokens, top_k]
  std::vector<double> log_sum_exp = {};    // [tokens]: over the whole vocabulary

  int64_t tokens() const { return static_cast<int64_t>(token_ids.size()); }
};

// Appends the prediction `logits` [vocab_size] after `token_id`. Throws nothing; the logits are
// finite.
void add_prediction(Teacher& teacher, int32_t token_id, int32_t document_id, const float* logits);

// Throws Error when the file cannot be written; an older one is then untouched.
void write_teacher(const Teacher& teacher, const std::string& path);

// Throws Error for another kind of file, damage, and numbers that no model predicts: ids outside
// the vocabulary, logits that do not descend or exceed their log-sum-exp.
Teacher read_teacher(const std::string& path);

}  // namespace k3
