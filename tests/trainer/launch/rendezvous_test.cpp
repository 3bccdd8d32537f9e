// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/rendezvous.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "lib/base/file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::trainer;
using tessera::test::TemporaryFolder;

namespace {

Rendezvous example() {
  return {.job = "18231.0",
          .token = wire::random_token(),
          .addresses = {{.host = "10.0.0.1", .port = 4242},
                        {.host = "fd00::1", .port = 4242},
                        {.host = "gpu-12", .port = 1}}};
}

}  // namespace

TEST_CASE("addresses go to text and back") {
  for (const char* text : {"10.0.0.1:4242", "[fd00::1]:65535", "gpu-12:1"}) {
    const auto address = parse_address(text);
    REQUIRE(address.has_value());
    CHECK(to_text(*address) == text);
  }
  CHECK(parse_address("[fd00::1]:65535")->host == "fd00::1");
  for (const char* bad : {"", "10.0.0.1", ":4242", "host:", "host:0", "host:65536", "host:x"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_address(bad).has_value());
  }
}

TEST_CASE("the rendezvous file is its owner's alone, whole, and goes with its owner") {
  const TemporaryFolder folder;
  const auto path = rendezvous_path(folder.path(), 2, 1);
  CHECK(path.filename() == "rendezvous.2.1");
  const Rendezvous sent = example();
  std::string why;
  {
    // An earlier start left a file that everyone can read.
    write_file_atomically(path, "{}");
    const RendezvousFile file(path, sent);
    struct stat status{};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
    const auto got = read_rendezvous(path, sent.job, why);
    REQUIRE(got.has_value());
    CHECK(got->token == sent.token);
    REQUIRE(got->addresses.size() == sent.addresses.size());
    for (std::size_t i = 0; i < sent.addresses.size(); ++i)
      CHECK(to_text(got->addresses[i]) == to_text(sent.addresses[i]));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a file that is another start's by now stays") {
  const TemporaryFolder folder;
  const auto path = rendezvous_path(folder.path(), 1, 0);
  {
    const RendezvousFile file(path, example());
    write_file_atomically(path, "another");
  }
  CHECK(read_file(path) == "another");
}

TEST_CASE("no file, one of another job and one that is none are told apart") {
  const TemporaryFolder folder;
  const auto path = rendezvous_path(folder.path(), 1, 0);
  std::string why;
  CHECK_FALSE(read_rendezvous(path, "18231.0", why).has_value());
  CHECK(why == "there is no " + path.string());
  const Rendezvous sent = example();
  {
    const RendezvousFile file(path, sent);
    CHECK_FALSE(read_rendezvous(path, "18232.0", why).has_value());
    CHECK(why == path.string() + " is of job '18231.0', this is '18232.0'");
  }
  const std::string token = wire::to_hex(sent.token);
  for (const std::string& text : {std::string(), std::string("{"), "{\"token\":\"" + token + "\"",
                                  "{\"tessera_rendezvous\":2,\"job\":\"18231.0\",\"token\":\"" +
                                      token + "\",\"addresses\":[\"a:1\"]}",
                                  "{\"tessera_rendezvous\":1,\"job\":\"18231.0\",\"token\":\"" +
                                      token + "x\",\"addresses\":[\"a:1\"]}",
                                  "{\"tessera_rendezvous\":1,\"job\":\"18231.0\",\"token\":\"" +
                                      token + "\",\"addresses\":[\"a\"]}"}) {
    CAPTURE(text);
    write_file_atomically(path, text);
    CHECK_FALSE(read_rendezvous(path, "18231.0", why).has_value());
    // The message does not contain the token.
    CHECK(why == path.string() + " is no rendezvous file");
  }
}
