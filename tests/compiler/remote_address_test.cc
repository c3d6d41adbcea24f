#include "compiler/remote_address.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/compiler/checkpoint_folder.h"

namespace k3 {
namespace {

using test::contains;
using test::message_of;

std::string fault(const std::string& url) {
  return message_of([&] { parse_address(url); });
}

std::string redirect_fault(const std::string& from, const std::string& location) {
  return message_of([&] { redirected("URL", parse_address(from), location); });
}

TEST(RemoteAddress, AUrlHasASchemeAndAPathHasNone) {
  EXPECT_TRUE(is_url("https://host/x"));
  EXPECT_TRUE(is_url("HF://x/y"));
  EXPECT_FALSE(is_url("/a/b"));
  EXPECT_FALSE(is_url("a/https://b"));
  EXPECT_FALSE(is_url("://b"));
  EXPECT_FALSE(is_url(""));
}

TEST(RemoteAddress, OriginsAreSchemeHostAndPort) {
  EXPECT_EQ(parse_address("https://Host.example/x").origin, "https://host.example:443");
  EXPECT_EQ(parse_address("https://host.example:443/y").origin, "https://host.example:443");
  EXPECT_NE(parse_address("https://host.example:444/").origin, "https://host.example:443");
  EXPECT_NE(parse_address("https://localhost:80/").origin,
            parse_address("http://localhost:80/").origin);
}

TEST(RemoteAddress, PlainHttpReachesThisMachineAlone) {
  for (const char* url : {"http://localhost/x", "http://127.0.0.1:80/", "http://127.9.9.9/",
                          "http://[::1]:8080/x", "http://[0:0:0:0:0:0:0:1]/"}) {
    EXPECT_TRUE(parse_address(url).is_this_machine) << url;
  }
  EXPECT_EQ(fault("http://host.example/x"),
            "http://host.example/x: leads to http://host.example, expected https, or http to this "
            "machine");
  for (const char* url :
       {"http://127.0.0.1.example/", "http://localhost.example/", "http://128.0.0.1/",
        "http://[::2]/", "ftp://localhost/", "file:///etc", "hf://org/name"}) {
    EXPECT_TRUE(contains(fault(url), "expected https")) << url;
  }
}

TEST(RemoteAddress, WhatMayBeSecretIsNeitherAcceptedNorRepeated) {
  for (const char* url : {"https://user:hunter2@host.example/x", "https://hunter2@host.example/",
                          "https://host.example/x?key=hunter2", "https://host.example/#hunter2",
                          "ftp://user:hunter2@host.example/"}) {
    const std::string message = fault(url);
    EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
    EXPECT_TRUE(contains(message, "the URL: ")) << url;
  }
}

TEST(RemoteAddress, ARedirectIsResolvedAgainstWhereItCameFrom) {
  const Address from = parse_address("https://host.example/a/b");
  EXPECT_EQ(redirected("URL", from, "c?q=1").url, "https://host.example/a/c?q=1");
  EXPECT_EQ(redirected("URL", from, "/c").url, "https://host.example/c");
  EXPECT_EQ(redirected("URL", from, "//other.example/c").origin, "https://other.example:443");
  EXPECT_EQ(redirected("URL", parse_address("http://localhost/a"), "https://host.example/").origin,
            "https://host.example:443");
}

TEST(RemoteAddress, ARedirectNeverLeadsDown) {
  EXPECT_EQ(redirect_fault("https://host.example/", "http://localhost/x"),
            "URL: a redirect from https down to http is not followed");
  EXPECT_EQ(redirect_fault("http://localhost/", "http://host.example/x?signature=hunter2"),
            "URL: a redirect: leads to http://host.example, expected https, or http to this "
            "machine");
  EXPECT_TRUE(contains(redirect_fault("https://host.example/", "file:///etc/passwd"), "expected"));
  EXPECT_TRUE(
      contains(redirect_fault("https://host.example/", "https://user:hunter2@other.example/"),
               "URL: a redirect: holds a user name"));
}

}  // namespace
}  // namespace k3
