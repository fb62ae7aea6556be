// Debian's gRPC, protobuf and OpenSSL are built without ThreadSanitizer, which therefore cannot see how their
// threads are ordered. Reports with none of their frames stay.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libgrpc\n"
         "race:libgpr\n"
         "race:libprotobuf\n"
         "race:libupb\n"
         "race:libabsl\n"
         "race:libcrypto\n"
         "race:libssl\n"
         // Inline code of gRPC's headers, on memory that its own threads hand over.
         "race_top:grpc::internal::\n";
}
