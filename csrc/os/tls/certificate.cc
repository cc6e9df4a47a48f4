// Connections and signed values with a certificate of a private authority for each member. Both
// sides of a connection show their certificates, and the upper half of a context id is a hash of
// the certificate. The dialing side sends both ids as the server name, which the signatures of the
// handshake cover. So a connection that is redirected or reflected fails.
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include "base/describe.h"
#include "base/serialize.h"
#include "os/random.h"
#include "os/tls/connection.h"

namespace ringdist::tls {
namespace {

using File = CertificateFiles::File;
using X509Ptr = Owned<X509, X509_free>;

constexpr std::string_view kSealLabel = "ringdist sealed value";
constexpr std::string_view kRankName = "ringdist:rank:";  // begins a URI of the alternative names
constexpr size_t kMostOwner = 64;                         // bytes of an owner that are shown
constexpr size_t kHashBytes = 32;                         // of SHA-256

std::array<uint8_t, kHashBytes> hash_of(ConstBytes bytes) {
  std::array<uint8_t, kHashBytes> out{};
  if (EVP_Q_digest(library(), "SHA256", nullptr, bytes.data(), bytes.size(), out.data(), nullptr) !=
      1)
    throw std::bad_alloc();
  return out;
}

std::vector<std::byte> der_of(const X509* certificate) {
  const int size = i2d_X509(certificate, nullptr);
  if (size <= 0) throw std::bad_alloc();
  std::vector<std::byte> out(static_cast<size_t>(size));
  auto* at = reinterpret_cast<unsigned char*>(out.data());
  i2d_X509(certificate, &at);
  return out;
}

// Returns the part of a certificate that its authority has signed. Its owner cannot change that,
// although the signature may have several forms.
std::vector<std::byte> signed_part(X509* certificate) {
  const X509Ptr copy(required(X509_dup(certificate)));  // the call changes it
  unsigned char* bytes = nullptr;
  const int size = i2d_re_X509_tbs(copy.get(), &bytes);
  if (size <= 0) throw std::bad_alloc();
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes);
  std::vector<std::byte> out(begin, begin + size);
  OPENSSL_free(bytes);
  return out;
}

std::string text_of(const ASN1_STRING* text) {
  if (text == nullptr) return "";
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

// Adds the rank of a URI; others are ignored.
void add_rank(Certificate& out, std::string_view uri) {
  if (!uri.starts_with(kRankName)) return;
  const std::string_view rank = uri.substr(kRankName.size());
  int number = -1;
  const auto read = std::from_chars(rank.data(), rank.data() + rank.size(), number);
  if (rank == "any")
    out.any_rank = true;
  else if (read.ec == std::errc() && read.ptr == rank.data() + rank.size() && number >= 0)
    out.ranks.push_back(number);
}

Certificate read_certificate(X509* certificate) {
  Certificate out;
  const X509_NAME* subject = X509_get_subject_name(certificate);
  if (const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1); at >= 0)
    out.owner =
        printable(text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at))), kMostOwner);
  const Owned<GENERAL_NAMES, GENERAL_NAMES_free> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI) add_rank(out, text_of(name->d.uniformResourceIdentifier));
  }
  std::ranges::sort(out.ranks);
  const auto hash = hash_of(signed_part(certificate));
  for (size_t i = 0; i < sizeof out.id_bits; ++i) out.id_bits = out.id_bits << 8 | hash[i];
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) == 1) out.expires_at = timegm(&end);
  ERR_clear_error();
  return out;
}

// Returns why a chain was refused, as the end of a sentence about the certificate.
std::string describe_refusal(int error, int depth) {
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return depth == 0 ? ", which has expired" : ", whose authority's certificate has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return ", which is not valid yet: compare the clocks of the hosts";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_CHAIN_TOO_LONG:
      return ", which another authority has signed";
    default:
      return std::string(", which is not valid (") + X509_verify_cert_error_string(error) + ")";
  }
}

// Both ids of a connection as a name that TLS can carry.
std::string server_name(uint64_t from, uint64_t to) {
  std::array<char, 48> out{};
  snprintf(out.data(), out.size(), "rd-%016llx-%016llx", static_cast<unsigned long long>(from),
           static_cast<unsigned long long>(to));
  return out.data();
}

class MemberKey final : public OpenSslKey {
 public:
  // Takes the parsed files, which fit each other.
  MemberKey(X509Ptr certificate, Owned<EVP_PKEY, EVP_PKEY_free> key, X509* authority,
            const TlsOptions& options);

  uint64_t draw_id() const override;
  const Certificate* certificate() const override { return &own_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  std::vector<std::byte> seal(ConstBytes value, std::string_view name) const override;
  std::optional<Unsealed> unseal(ConstBytes sealed, std::string_view name,
                                 Expired expired) const override;

  void begin(OpenSslConnection& connection) const override {
    const std::string name = server_name(connection.me(), connection.claimed());
    if (SSL_set_tlsext_host_name(connection.ssl(), name.c_str()) != 1) throw std::bad_alloc();
  }
  bool is_proven(const OpenSslConnection& connection) const override {
    return connection.claimed() != 0 && SSL_session_reused(connection.ssl()) == 0 &&
           SSL_get0_peer_certificate(connection.ssl()) != nullptr &&
           SSL_get_verify_result(connection.ssl()) == X509_V_OK;
  }
  std::string explain(const OpenSslConnection& connection, int reason) const override;
  std::string name_peer(const OpenSslConnection& connection) const override {
    X509* const shown = SSL_get0_peer_certificate(connection.ssl());
    return shown != nullptr ? read_certificate(shown).describe() : "";
  }

  // Returns the error of X509_verify_cert() for a certificate, and the depth where it was found.
  std::pair<int, int> verify(X509* certificate, Expired expired) const;

 private:
  // Functions that OpenSSL calls in a handshake. Nothing throws.
  static int on_server_name(SSL* ssl, int* alert, void*);
  static int on_certificate(int is_valid, X509_STORE_CTX* chain);

  const X509Ptr certificate_;
  const Owned<EVP_PKEY, EVP_PKEY_free> key_;
  const Owned<X509_STORE, X509_STORE_free> trusted_;
  const Certificate own_;
  uint64_t fingerprint_ = 0;
};

// The authority signs members itself, so there is nothing between its certificate and theirs.
MemberKey::MemberKey(X509Ptr certificate, Owned<EVP_PKEY, EVP_PKEY_free> key, X509* authority,
                     const TlsOptions& options)
    : OpenSslKey(options),
      certificate_(std::move(certificate)),
      key_(std::move(key)),
      trusted_(required(X509_STORE_new())),
      own_(read_certificate(certificate_.get())) {
  bool good = X509_STORE_add_cert(trusted_.get(), authority) == 1 &&
              X509_STORE_set_flags(trusted_.get(), X509_V_FLAG_PARTIAL_CHAIN) == 1 &&
              X509_STORE_set_depth(trusted_.get(), 0) == 1;
  for (const bool dials : {false, true}) {
    SSL_CTX* const one = context(dials);
    SSL_CTX_set_mode(one, SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_verify(one, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_certificate);
    SSL_CTX_set_verify_depth(one, 0);
    SSL_CTX_set1_cert_store(one, trusted_.get());
    good = good && SSL_CTX_use_certificate(one, certificate_.get()) == 1 &&
           SSL_CTX_use_PrivateKey(one, key_.get()) == 1;
  }
  SSL_CTX_set_tlsext_servername_callback(context(/*dials=*/false), on_server_name);
  if (!good) throw std::bad_alloc();
  const auto hash = hash_of(der_of(authority));
  for (size_t i = 0; i < sizeof fingerprint_; ++i) fingerprint_ = fingerprint_ << 8 | hash[i];
  fingerprint_ += fingerprint_ == 0;
}

uint64_t MemberKey::draw_id() const {
  uint32_t number = 0;
  while (number == 0) number = static_cast<uint32_t>(random_id());
  return uint64_t{own_.id_bits} << 32 | number;
}

// Returns the bytes to sign. They begin with a label, and so differ from all that TLS signs.
std::vector<std::byte> to_sign(ConstBytes value, std::string_view name) {
  return Writer().put_string(kSealLabel).put_string(name).put_bytes(value).take();
}

std::vector<std::byte> MemberKey::seal(ConstBytes value, std::string_view name) const {
  const auto text = to_sign(value, name);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  const Owned<EVP_MD_CTX, EVP_MD_CTX_free> state(required(EVP_MD_CTX_new()));
  std::vector<std::byte> signature(static_cast<size_t>(EVP_PKEY_get_size(key_.get())));
  size_t size = signature.size();
  if (EVP_DigestSignInit_ex(state.get(), nullptr, nullptr, library(), nullptr, key_.get(),
                            nullptr) != 1 ||
      EVP_DigestSign(state.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, bytes,
                     text.size()) != 1)
    throw std::bad_alloc();
  signature.resize(size);
  return Writer()
      .put_bytes(value)
      .put_bytes(der_of(certificate_.get()))
      .put_bytes(signature)
      .take();
}

std::optional<Unsealed> MemberKey::unseal(ConstBytes sealed, std::string_view name,
                                          Expired expired) const {
  Reader in(sealed);
  Unsealed out{in.get_bytes(), std::nullopt};
  const auto der = in.get_bytes();
  const auto signature = in.get_bytes();
  if (!in.ended()) return std::nullopt;
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  X509* made = X509_new_ex(library(), nullptr);
  (void)d2i_X509(&made, &at,
                 static_cast<long>(der.size()));  // frees it and clears `made` if it fails
  const X509Ptr certificate(made);
  const auto text = to_sign(out.value, name);
  const Owned<EVP_MD_CTX, EVP_MD_CTX_free> state(required(EVP_MD_CTX_new()));
  const bool good =
      certificate && verify(certificate.get(), expired).first == X509_V_OK &&
      EVP_DigestVerifyInit_ex(state.get(), nullptr, nullptr, library(), nullptr,
                              X509_get0_pubkey(certificate.get()), nullptr) == 1 &&
      EVP_DigestVerify(state.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                       signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                       text.size()) == 1;
  ERR_clear_error();
  if (!good) return std::nullopt;
  out.signer = read_certificate(certificate.get());
  if (!out.signer->has_ranks()) return std::nullopt;
  return out;
}

std::pair<int, int> MemberKey::verify(X509* certificate, Expired expired) const {
  const Owned<X509_STORE_CTX, X509_STORE_CTX_free> chain(
      required(X509_STORE_CTX_new_ex(library(), nullptr)));
  if (X509_STORE_CTX_init(chain.get(), trusted_.get(), certificate, nullptr) != 1)
    throw std::bad_alloc();
  if (expired == Expired::kAllowed)
    X509_STORE_CTX_set_flags(chain.get(), X509_V_FLAG_NO_CHECK_TIME);
  const bool good = X509_verify_cert(chain.get()) == 1;
  const int error = X509_STORE_CTX_get_error(chain.get());
  ERR_clear_error();
  return {good                 ? X509_V_OK
          : error != X509_V_OK ? error
                               : X509_V_ERR_UNSPECIFIED,
          X509_STORE_CTX_get_error_depth(chain.get())};
}

int MemberKey::on_server_name(SSL* ssl, int*, void*) try {
  OpenSslConnection& self = OpenSslConnection::of(ssl);
  const char* const given = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  const std::string name = given != nullptr ? given : "";
  constexpr size_t kFrom = 3;  // after "rd-"
  constexpr size_t kTo = 20;   // after the first id
  const bool is_long = name.size() > kTo;
  const uint64_t from = is_long ? strtoull(name.c_str() + kFrom, nullptr, 16) : 0;
  const uint64_t to = is_long ? strtoull(name.c_str() + kTo, nullptr, 16) : 0;
  if (name != server_name(from, to))
    self.refuse("it has no certificate of a member");
  else if (self.claim(from, to))
    return SSL_TLSEXT_ERR_OK;
  return SSL_TLSEXT_ERR_ALERT_FATAL;
} catch (const std::bad_alloc&) {
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

// Called for each fault of the chain, and at the end for each certificate of it.
int MemberKey::on_certificate(int is_valid, X509_STORE_CTX* chain) try {
  auto* const ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
  OpenSslConnection& self = OpenSslConnection::of(ssl);
  const int depth = X509_STORE_CTX_get_error_depth(chain);
  X509* const shown = X509_STORE_CTX_get0_cert(chain);
  if (is_valid == 1 && depth > 0) return 1;
  const Certificate certificate = read_certificate(shown);
  const std::string has = "it has " + certificate.describe();
  const bool fits = self.claimed() == kStoreId ? self.dialed() : certificate.fits(self.claimed());
  if (is_valid != 1)
    self.refuse(has + describe_refusal(X509_STORE_CTX_get_error(chain), depth));
  else if (!certificate.has_ranks())
    self.refuse(has);
  else if (!fits)
    self.refuse(has + ", which is not that of the process it claims to be");
  else
    return 1;
  if (is_valid == 1) X509_STORE_CTX_set_error(chain, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
} catch (const std::bad_alloc&) {
  return 0;
}

std::string MemberKey::explain(const OpenSslConnection& connection, int reason) const {
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return "it has no certificate";
  if (reason < SSL_AD_REASON_OFFSET) return "";
  const char* const text = ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, reason));
  return std::string("it has refused ") +
         (connection.dialed() ? "the certificate of this process" : "this process") + " (" +
         (text != nullptr ? text : "an alert") + ")";
}

// ---- The files

Error bad_file(const char* variable, const File& file, const std::string& why) {
  ERR_clear_error();
  return Error(ErrorKind::kInvalidArgument,
               std::string(variable) + " names " + file.name + ", which " + why);
}

using Reading = Owned<BIO, BIO_free>;
Reading reader_of(const File& file) {
  return Reading(required(BIO_new_mem_buf(file.text.data(), static_cast<int>(file.text.size()))));
}

// Keys with a password are refused.
int no_password(char*, int, int, void*) { return -1; }

X509Ptr parse_certificate(const File& file) {
  X509* out = required(X509_new_ex(library(), nullptr));
  if (PEM_read_bio_X509(reader_of(file).get(), &out, no_password, nullptr) != nullptr)
    return X509Ptr(out);
  X509_free(out);
  return nullptr;
}

}  // namespace

Result<std::shared_ptr<const TlsKey>> use_certificate(const CertificateFiles& files,
                                                      const TlsOptions& options) {
  const auto bad_cert = [&](const std::string& why) {
    return bad_file("RINGDIST_CERT", files.certificate, why);
  };
  const auto bad_key = [&](const std::string& why) {
    return bad_file("RINGDIST_CERT_KEY", files.key, why);
  };
  const auto bad_ca = [&](const std::string& why) {
    return bad_file("RINGDIST_CA", files.authority,
                    why + ": give the ca.pem of 'python -m torch_ringdist key ca'");
  };
  auto certificate = parse_certificate(files.certificate);
  if (!certificate)
    return bad_cert(
        "has no certificate in PEM form: make one with 'python -m torch_ringdist key request' and "
        "'key sign'");
  Owned<EVP_PKEY, EVP_PKEY_free> key(PEM_read_bio_PrivateKey_ex(
      reader_of(files.key).get(), nullptr, no_password, nullptr, library(), nullptr));
  if (!key)
    return bad_key(
        "has no private key in PEM form without a password: make one with 'python -m "
        "torch_ringdist key request'");
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    return bad_key("is not the key of the certificate that RINGDIST_CERT names, " +
                   files.certificate.name + ": give the one from the same 'key request'");
  const auto authority = parse_certificate(files.authority);
  if (!authority) return bad_ca("has no certificate in PEM form");
  if (X509_check_ca(authority.get()) == 0) return bad_ca("has the certificate of no authority");
  X509* const own = certificate.get();
  const auto made =
      std::make_shared<MemberKey>(std::move(certificate), std::move(key), authority.get(), options);
  const std::string has = "has " + made->certificate()->describe();
  const auto [error, depth] = made->verify(own, TlsKey::Expired::kRefused);
  if (error != X509_V_OK && depth > 0)
    return bad_ca(std::string("is not valid (") + X509_verify_cert_error_string(error) + ")");
  if (error != X509_V_OK)
    return bad_cert(has + describe_refusal(error, depth) + ": let the authority of " +
                    files.authority.name + " sign one with 'python -m torch_ringdist key sign'");
  if (!made->certificate()->has_ranks())
    return bad_cert(has +
                    ": it needs an alternative name such as URI:ringdist:rank:2 or "
                    "URI:ringdist:rank:any");
  return std::shared_ptr<const TlsKey>(made);
}

}  // namespace ringdist::tls
