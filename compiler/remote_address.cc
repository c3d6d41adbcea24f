// The second file that includes libcurl, for its URL parser: a check by one parser of what another
// one then asks for can be led past.
#include "compiler/remote_address.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool names_this_machine(const std::string& host) {
  if (host == "localhost") return true;
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (!host.starts_with('[') || !host.ends_with(']')) return false;
  in6_addr six{};
  return ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&six) != 0;
}

// `subject` begins every message.
class UrlParser {
 public:
  explicit UrlParser(std::string subject) : subject_(std::move(subject)), parsed_(curl_url()) {
    K3_CHECK(parsed_ != nullptr);
  }

  // Relative to what was set before, if anything was.
  void set(const std::string& url, unsigned flags) {
    const CURLUcode code = curl_url_set(parsed_.get(), CURLUPART_URL, url.c_str(),
                                        flags | CURLU_DISALLOW_USER | CURLU_NON_SUPPORT_SCHEME);
    if (code == CURLUE_USER_NOT_ALLOWED) {
      throw Error(subject_, ": holds a user name, which is not sent; a token goes into HF_TOKEN");
    }
    check(code);
  }

  std::string part(CURLUPart which, unsigned flags = 0) const {
    char* text = nullptr;
    const CURLUcode code = curl_url_get(parsed_.get(), which, &text, flags);
    const std::unique_ptr<char, FreeText> owner(text);
    check(code);
    return text;
  }

  Address address() const {
    const std::string scheme = part(CURLUPART_SCHEME);
    // file:///x has no host, and the message is to say what is wrong with it.
    std::string host = scheme == "http" || scheme == "https" ? part(CURLUPART_HOST) : "";
    std::transform(host.begin(), host.end(), host.begin(), lower);
    Address address;
    address.is_https = scheme == "https";
    address.is_this_machine = names_this_machine(host);
    if (!address.is_https && !(scheme == "http" && address.is_this_machine)) {
      throw Error(subject_, ": leads to ", printable(scheme), "://", printable(host),
                  ", expected https, or http to this machine");
    }
    address.url = part(CURLUPART_URL);
    address.origin = scheme + "://" + host + ":" + part(CURLUPART_PORT, CURLU_DEFAULT_PORT);
    return address;
  }

 private:
  struct FreeUrl {
    void operator()(CURLU* url) const { curl_url_cleanup(url); }
  };
  struct FreeText {
    void operator()(char* text) const { curl_free(text); }
  };

  void check(CURLUcode code) const {
    if (code != CURLUE_OK) throw Error(subject_, ": not a URL: ", curl_url_strerror(code));
  }

  std::string subject_;
  std::unique_ptr<CURLU, FreeUrl> parsed_;
};

}  // namespace

bool is_url(std::string_view path) {
  const std::string_view scheme = path.substr(0, std::min(path.find("://"), path.size()));
  return !scheme.empty() && scheme.size() < path.size() &&
         std::all_of(scheme.begin(), scheme.end(),
                     [](char c) { return lower(c) >= 'a' && lower(c) <= 'z'; });
}

Address parse_address(const std::string& url) {
  // What stands before an @ or behind a ? may be a password or a key.
  const bool secret = url.find_first_of("@?#") != std::string::npos;
  UrlParser parser(secret ? "the URL" : printable(url));
  parser.set(url, 0);
  if (url.find_first_of("?#") != std::string::npos) {
    throw Error("the URL: has a query or a fragment, expected where the files of a checkpoint lie");
  }
  return parser.address();
}

Address redirected(const std::string& url, const Address& from, const std::string& location) {
  UrlParser parser(url + ": a redirect");
  parser.set(from.url, 0);
  parser.set(location, CURLU_URLENCODE);
  Address address = parser.address();
  if (from.is_https && !address.is_https) {
    throw Error(url, ": a redirect from https down to http is not followed");
  }
  return address;
}

}  // namespace k3
