// URLs of checkpoints, and where a request may go.
#pragma once

#include <string>
#include <string_view>

namespace k3 {

// Whether `path` has a scheme, as in https://, and so is no path of this machine.
bool is_url(std::string_view path);

struct Address {
  std::string url;     // as it is asked for
  std::string origin;  // scheme, host and port: who sees what is sent with the request
  bool is_https = false;
  bool is_this_machine = false;  // by number or as localhost; resolving nothing
};

// Parses and checks a URL that a user named: https, or http to this machine; no user name, query or
// fragment. Throws Error, without what may be secret in the URL.
Address parse_address(const std::string& url);

// Where `location`, the Location of a response from `from`, leads. The same rules, but a query is
// allowed, and https does not lead down to http. `url` begins every message; of the location they
// tell scheme and host alone, for the rest may be a signature that grants access.
Address redirected(const std::string& url, const Address& from, const std::string& location);

}  // namespace k3
