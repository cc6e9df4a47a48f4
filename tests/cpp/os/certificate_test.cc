// TLS with a certificate for each member.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "os/stream.h"
#include "os/tls_key.h"
#include "support/stream_pair.h"
#include "support/test_certificate.h"
#include "support/test_key.h"

namespace ringdist {
namespace {

using Expired = TlsKey::Expired;

constexpr std::string_view kOfB = "the certificate of owner 'b' for ranks 2, 5";

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class Certificates : public testing::Test {
 protected:
  const std::shared_ptr<const TlsKey> a_ = certificate_of("a");
  const std::shared_ptr<const TlsKey> b_ = certificate_of("b");
  const uint64_t id_of_a_ = a_->draw_id();
  const uint64_t id_of_b_ = b_->draw_id();

  // Dials with one id and accepts with another. The dialing side means `meant`.
  static StreamPair pair_of(const TlsKey& dials, uint64_t from, const TlsKey& accepts, uint64_t to,
                            uint64_t meant) {
    auto [near, far] = connection();
    return {Stream(std::move(near), dials.dial(from, meant)),
            Stream(std::move(far), accepts.accept(to))};
  }
  // Runs a handshake that the accepting side refuses, and returns its reason.
  static std::string refusal(StreamPair pair) {
    const int accepted = shake(pair).second;
    EXPECT_EQ(accepted, EPROTO);
    EXPECT_EQ(pair.accepted.peer(), 0U);
    return pair.accepted.describe(accepted);
  }
  static void expect_part(const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
};

TEST_F(Certificates, ProveBothSides) {
  using Suite = TlsOptions::Suite;
  for (const Suite suite : {Suite::kAes256, Suite::kChaCha20}) {
    TlsOptions options;
    options.suite = suite;
    StreamPair pair =
        pair_of(*certificate_of("a", "ca", options), id_of_a_, *b_, id_of_b_, id_of_b_);
    ASSERT_EQ(shake(pair), std::pair(0, 0));
    EXPECT_EQ(pair.dialed.peer(), id_of_b_);
    EXPECT_EQ(pair.dialed.peer_name(), kOfB);
    EXPECT_EQ(pair.accepted.peer(), id_of_a_);
    EXPECT_EQ(pair.accepted.peer_name(), "the certificate of owner 'a' for rank 1");
    ASSERT_EQ(pair.dialed.write(bytes_of("hello")), 5);
    std::array<std::byte, 8> got{};
    ssize_t n = -1;
    while ((n = pair.accepted.read(got)) < 0) ASSERT_EQ(errno, EAGAIN);
    EXPECT_EQ(n, 5);
  }
}

TEST_F(Certificates, IdsAreOfOneCertificate) {
  EXPECT_NE(a_->draw_id(), id_of_a_);
  EXPECT_TRUE(a_->certificate()->fits(id_of_a_));
  EXPECT_FALSE(b_->certificate()->fits(id_of_a_));
  EXPECT_TRUE(b_->certificate()->allows(5));
  EXPECT_FALSE(b_->certificate()->allows(1));
  EXPECT_TRUE(certificate_of("any")->certificate()->allows(1000));
  EXPECT_EQ(a_->fingerprint(), b_->fingerprint());
  EXPECT_NE(a_->fingerprint(), certificate_of("stranger", "other_ca")->fingerprint());
}

// A member with a certificate of its own dials as another member, or listens in its place.
TEST_F(Certificates, AMemberCannotBeAnother) {
  const std::string refused = refusal(pair_of(*b_, id_of_a_, *a_, id_of_a_ + 1, id_of_a_ + 1));
  expect_part(refused, kOfB);
  expect_part(refused, "which is not that of the process it claims to be");
  StreamPair pair = pair_of(*a_, id_of_a_ + 1, *b_, id_of_a_, id_of_a_);
  EXPECT_EQ(shake(pair).first, EPROTO);
  expect_part(pair.dialed.describe(EPROTO), kOfB);
}

TEST_F(Certificates, AConnectionForAnotherProcessIsRefused) {
  EXPECT_EQ(refusal(pair_of(*a_, id_of_a_, *b_, id_of_b_, /*meant=*/id_of_b_ + 1)),
            "TLS: it means another process");
  EXPECT_EQ(refusal(pair_of(*a_, id_of_a_, *a_, id_of_a_, /*meant=*/id_of_b_)),
            "TLS: it means another process");
}

TEST_F(Certificates, AStoreNeedsAnyOfThem) {
  StreamPair pair = pair_of(*a_, id_of_a_, *b_, kStoreId, kStoreId);
  EXPECT_EQ(shake(pair), std::pair(0, 0));
  expect_part(refusal(pair_of(*a_, kStoreId, *b_, id_of_b_, id_of_b_)), "not that of the process");
}

TEST_F(Certificates, OthersAreRefused) {
  const auto other = certificate_of("stranger", "other_ca");
  const uint64_t id = other->draw_id();
  StreamPair pair = pair_of(*a_, id_of_a_, *other, id, id);
  EXPECT_EQ(shake(pair), std::pair(EPROTO, EPROTO));
  EXPECT_EQ(pair.dialed.describe(EPROTO),
            "TLS: it has the certificate of owner 'a' for rank 1, which another authority has "
            "signed");
  expect_part(pair.accepted.describe(EPROTO), "it has refused this process");
}

// A key of a job is no certificate, and the reverse.
TEST_F(Certificates, KeysAreRefused) {
  const auto key = key_of(1);
  EXPECT_EQ(refusal(pair_of(*key, 11, *a_, id_of_a_, id_of_a_)),
            "TLS: it has no certificate of a member");
  EXPECT_EQ(refusal(pair_of(*a_, id_of_a_, *key, 11, 11)), "TLS: it has no key");
}

TEST_F(Certificates, BindValuesToTheirNames) {
  const auto sealed = b_->seal(bytes_of("value"), "name");
  const auto opened = a_->unseal(sealed, "name", Expired::kRefused);
  ASSERT_TRUE(opened);
  EXPECT_TRUE(std::ranges::equal(opened->value, bytes_of("value")));
  EXPECT_TRUE(opened->signer->fits(id_of_b_));
  EXPECT_EQ(opened->signer->describe(), kOfB);
  EXPECT_FALSE(a_->unseal(sealed, "another name", Expired::kRefused));
  EXPECT_FALSE(key_of(1)->unseal(sealed, "name", Expired::kRefused));
  const auto other = certificate_of("stranger", "other_ca");
  EXPECT_FALSE(other->unseal(sealed, "name", Expired::kAllowed));
  EXPECT_FALSE(a_->unseal(other->seal(bytes_of("value"), "name"), "name", Expired::kAllowed));
  for (size_t i = 0; i < sealed.size(); ++i) {
    auto changed = sealed;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(a_->unseal(changed, "name", Expired::kRefused)) << i;
    EXPECT_FALSE(a_->unseal(ConstBytes(sealed).first(i), "name", Expired::kRefused)) << i;
  }
}

TEST_F(Certificates, FilesMustFitEachOther) {
  const auto error = [](const auto& loaded) {
    EXPECT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().kind(), ErrorKind::kInvalidArgument);
    return loaded.error().message();
  };
  const auto with = [&](const char* cert, const char* key, const char* ca) {
    return error(load_tls({pem_file(cert), pem_file(key), pem_file(ca)}, TlsOptions()));
  };
  expect_part(error(load_certificate("expired")),
              "RINGDIST_CERT names expired.pem, which has the certificate of owner 'a' for rank 1, "
              "which has expired");
  expect_part(error(load_certificate("stranger")), "which another authority has signed");
  expect_part(error(load_certificate("unranked")), "for no rank: it needs an alternative name");
  expect_part(with("a.pem", "b.key", "ca.pem"),
              "RINGDIST_CERT_KEY names b.key, which is not the key");
  expect_part(with("a.key", "a.key", "ca.pem"), "RINGDIST_CERT names a.key, which has no");
  expect_part(with("a.pem", "a.pem", "ca.pem"), "RINGDIST_CERT_KEY names a.pem, which has no");
  expect_part(with("a.pem", "a.key", "a.key"), "RINGDIST_CA names a.key, which has no");
  expect_part(with("a.pem", "a.key", "b.pem"), "of no authority");
}

TEST_F(Certificates, SettingsMustFitEachOther) {
  const auto error = [](const TlsFiles& files) {
    const auto read = read_tls_key(files);
    EXPECT_FALSE(read.ok());
    return read.ok() ? "" : read.error().message();
  };
  expect_part(error({"job.key", "c", "k", "ca"}), "RINGDIST_KEY_FILE and RINGDIST_CERT, ");
  expect_part(error({"", "c", "", "ca"}),
              "RINGDIST_CERT_KEY and RINGDIST_CA; not set: RINGDIST_CERT_KEY");
  std::string folder = testing::TempDir() + "ringdist-cert-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  TlsFiles files{"", folder + "/cert", folder + "/key", folder + "/ca"};
  expect_part(error(files), "RINGDIST_CERT names " + files.cert + ", which cannot be read");
  std::ofstream(files.cert) << pem_file("a.pem").text;
  std::ofstream(files.cert_key) << pem_file("a.key").text;
  std::ofstream(files.ca) << pem_file("ca.pem").text;
  chmod(files.cert_key.c_str(), 0644);
  expect_part(error(files), "RINGDIST_CERT_KEY names " + files.cert_key +
                                ", which others may use, with mode 0644: run 'chmod 600");
  chmod(files.cert_key.c_str(), 0600);
  EXPECT_TRUE(read_tls_key(files).ok());
  EXPECT_EQ(read_tls_key(TlsFiles()).value(), nullptr);
  for (const std::string& file : {files.cert, files.cert_key, files.ca}) unlink(file.c_str());
  rmdir(folder.c_str());
}

}  // namespace
}  // namespace ringdist
