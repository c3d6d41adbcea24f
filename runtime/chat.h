// K3's chat format: messages as nested elements whose brackets are special tokens.
//
//   <|open|>message role="user"<|sep|>Hello<|close|>message<|sep|><|end_of_msg|>
//
// An assistant's message holds channels in the same notation: think, then response.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/tokenizer.h"

namespace k3 {

enum class ChatRole { kSystem, kUser, kAssistant };

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content = {};              // an assistant's: the response
  std::string thinking = {};             // an assistant's only
  std::optional<std::string> name = {};  // of the speaker
};

enum class ChatMode {
  kThinking,  // the answer starts in the think channel; earlier ones keep theirs, even if empty
  kInstruct,  // the answer is the response channel alone; earlier ones lose their think channel
};

// The ids of a conversation up to where the assistant's next answer begins: inside its first
// channel, whose opening tag is part of the prompt, so that a reader of the answer must not wait
// for one. There is no BOS. Whatever a message contains stays text, also the spelling of a special
// token. Throws Error when the tokenizer lacks a token of the markup, or a text is not UTF-8.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                 ChatMode mode = ChatMode::kThinking);

// The id with which the model ends its answer; empty when the vocabulary has none.
std::optional<int32_t> end_of_message_id(const Tokenizer& tokenizer);

}  // namespace k3
