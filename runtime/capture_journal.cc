#include "runtime/capture_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>
#include <sstream>
#include <string_view>

#include "schema/calibration_index.h"
#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"

namespace k3 {
namespace {

constexpr int64_t kLargestJournal = int64_t{1} << 30;
constexpr std::string_view kHead = "k3capture ";

// `text` with its hash in front and the end of the line behind.
std::string sealed(const std::string& text) {
  std::string line = hex_digits(xxh3(std::as_bytes(std::span(text))));
  line += ' ';
  line += text;
  line += '\n';
  return line;
}

// What a sealed line holds, or nothing when the line is damaged.
std::string_view opened(std::string_view line) {
  if (line.size() < 18) return {};
  const std::string_view text = line.substr(17);
  const bool sound =
      line[16] == ' ' && line.substr(0, 16) == hex_digits(xxh3(std::as_bytes(std::span(text))));
  return sound ? text : std::string_view();
}

// Cuts a number and the space behind it off the front of `text`.
int64_t take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  K3_CHECK(error == std::errc());  // the line's hash was right
  text.remove_prefix(std::min(text.size(), static_cast<size_t>(end - text.data()) + 1));
  return number;
}

int open_locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) throw Error(path, ": cannot open for writing: ", std::strerror(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor);
    throw Error(path, ": another capture is writing here");
  }
  return descriptor;
}

}  // namespace

CaptureJournal::CaptureJournal(const std::string& path, uint64_t key)
    : file_(std::make_unique<OutputFile>(open_locked(path), path)) {
  const std::vector<std::byte> bytes = read_whole_file(path, kLargestJournal);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string head = sealed(std::string(kHead) + hex_digits(key));
  if (!text.starts_with(head)) {
    const std::string_view first = opened(text.substr(0, text.find('\n')));
    if (first.starts_with(kHead)) {
      throw Error(path,
                  ": belongs to a capture of other packs, texts or options; remove its folder "
                  "to start anew");
    }
    file_->write_at(0, std::as_bytes(std::span(head)));
    text = {};
  } else {
    text.remove_prefix(head.size());
  }
  end_bytes_ = std::ssize(head);
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    if (!read_line(text.substr(0, end))) break;
    end_bytes_ += static_cast<int64_t>(end) + 1;
    text.remove_prefix(end + 1);
  }
  if (::ftruncate(file_->descriptor(), end_bytes_) != 0) {
    throw Error(path, ": cannot cut off at ", end_bytes_, ": ", std::strerror(errno));
  }
  file_->sync();
}

// A line is "LAYER END_BYTES", then one input's JSON after each tab.
bool CaptureJournal::read_line(std::string_view line) {
  std::string_view text = opened(line);
  if (text.empty()) return false;
  CapturedStage stage;
  stage.layer = take_number(text);
  stage.end_bytes = take_number(text);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\t'), text.size());
    stage.inputs.push_back(parse_calibration_input(file_->path(), text.substr(0, end)));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  if (stage.layer != std::ssize(stages_) - 1) return false;
  stages_.push_back(std::move(stage));
  return true;
}

void CaptureJournal::add(const CapturedStage& stage) {
  std::ostringstream text;
  text << stage.layer << ' ' << stage.end_bytes;
  for (const CalibrationInput& input : stage.inputs)
    text << '\t' << encode_calibration_input(input);
  const std::string line = sealed(text.str());
  file_->write_at(end_bytes_, std::as_bytes(std::span(line)));
  file_->sync();
  end_bytes_ += std::ssize(line);
  stages_.push_back(stage);
}

}  // namespace k3
