// The model was trained on ids, not on text, so the places where the text is cut before it is
// encoded are part of the format: every bracket, tag, attribute name, quote and value is encoded on
// its own. Encoding the concatenation gives other ids. It would also be unsafe: here the markup's
// special tokens are appended as ids, and no path leads from a message's text to one.
#include "runtime/chat.h"

#include <utility>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr std::string_view kEndOfMessage = "<|end_of_msg|>";

int32_t expect_special(const Tokenizer& tokenizer, std::string_view name) {
  const std::optional<int32_t> id = tokenizer.special_id(name);
  if (!id) throw Error("tokenizer: no special token ", name, ", expected the markup of K3's chat");
  return *id;
}

std::string_view role_name(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
  }
  K3_CHECK(false);
  return {};
}

// Only what would end the value is escaped; < and > stay as they are.
std::string escape_attribute(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

struct Attribute {
  std::string_view key;
  std::string_view value;
};

// Writes elements as ids.
class MarkupWriter {
 public:
  explicit MarkupWriter(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        open_id_(expect_special(tokenizer, "<|open|>")),
        close_id_(expect_special(tokenizer, "<|close|>")),
        sep_id_(expect_special(tokenizer, "<|sep|>")),
        end_of_message_id_(expect_special(tokenizer, kEndOfMessage)) {}

  void open(std::string_view tag, std::span<const Attribute> attributes = {}) {
    ids_.push_back(open_id_);
    text(tag);
    for (const Attribute& attribute : attributes) {
      text(std::string(" ").append(attribute.key));
      text("=\"");
      text(escape_attribute(attribute.value));
      text("\"");
    }
    ids_.push_back(sep_id_);
  }

  void text(std::string_view segment) {
    const std::vector<int32_t> ids = tokenizer_.encode(segment);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

  void close(std::string_view tag) {
    ids_.push_back(close_id_);
    text(tag);
    ids_.push_back(sep_id_);
  }

  void element(std::string_view tag, std::string_view content) {
    open(tag);
    text(content);
    close(tag);
  }

  void end_message() {
    close("message");
    ids_.push_back(end_of_message_id_);
  }

  std::vector<int32_t> take_ids() { return std::move(ids_); }

 private:
  const Tokenizer& tokenizer_;
  int32_t open_id_;
  int32_t close_id_;
  int32_t sep_id_;
  int32_t end_of_message_id_;
  std::vector<int32_t> ids_;
};

void open_message(MarkupWriter& writer, ChatRole role, const std::optional<std::string>& name) {
  std::vector<Attribute> attributes = {{"role", role_name(role)}};
  if (name) attributes.push_back({"name", *name});
  writer.open("message", attributes);
}

void write_message(MarkupWriter& writer, const ChatMessage& message, ChatMode mode) {
  open_message(writer, message.role, message.name);
  if (message.role == ChatRole::kAssistant) {
    if (mode == ChatMode::kThinking) writer.element("think", message.thinking);
    writer.element("response", message.content);
  } else {
    writer.text(message.content);
  }
  writer.end_message();
}

}  // namespace

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                 ChatMode mode) {
  MarkupWriter writer(tokenizer);
  for (const ChatMessage& message : messages) write_message(writer, message, mode);
  open_message(writer, ChatRole::kAssistant, std::nullopt);
  writer.open(mode == ChatMode::kThinking ? "think" : "response");
  return writer.take_ids();
}

std::optional<int32_t> end_of_message_id(const Tokenizer& tokenizer) {
  return tokenizer.special_id(kEndOfMessage);
}

}  // namespace k3
