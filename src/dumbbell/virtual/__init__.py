"""Worlds of virtual time, how playbooks run them, and the controller within a light world."""

GIVEN = "light.json"  # in a world's directory: what the controller of a light world reads

# Variables by which glibc, Go and OpenSSL use only what all x86-64 processors have: what else a processor has
# must not change what programs do.
_NEWER = (
    *("AVX", "AVX2", "AVX512BW", "AVX512F", "AVX512VL", "BMI1", "BMI2", "ERMS", "FSRM", "LZCNT", "MOVBE"),
    *("POPCNT", "RTM", "SSE3", "SSE4_1", "SSE4_2", "SSSE3", "XSAVE", "XSAVEC"),
)
PLAIN_CPU = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{name}" for name in _NEWER),
    "GODEBUG": "cpu.all=off",
    "OPENSSL_ia32cap": "0x78bfbff:0",
}
