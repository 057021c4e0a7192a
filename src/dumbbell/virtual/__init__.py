"""Worlds of virtual time, how playbooks run them, and the controller within a light world."""

GIVEN = "light.json"  # in a world's directory: what the controller of a light world reads

# What glibc, Go and OpenSSL may use of a processor is in variables, and is what all x86-64 processors have:
# other features, and other sizes of caches, change which code of theirs runs, and with it every sample.
_FEATURES = (  # of glibc
    *("AVX", "AVX2", "AVX512BW", "AVX512F", "AVX512VL", "BMI1", "BMI2", "ERMS", "FSRM", "LZCNT", "MOVBE"),
    *("POPCNT", "RTM", "SSE3", "SSE4_1", "SSE4_2", "SSSE3", "XSAVE", "XSAVEC"),
    *("AVX_Fast_Unaligned_Load", "Fast_Copy_Backward", "Fast_Rep_String", "Fast_Unaligned_Copy"),
    *("Fast_Unaligned_Load", "Prefer_ERMS", "Prefer_FSRM", "Prefer_No_AVX512_Probing"),
    *("Prefer_No_VZEROUPPER", "Prefer_PMINUB_for_stringop", "Slow_BSF", "Slow_SSE4_2"),
)
_CACHES = {
    "x86_data_cache_size": 0x8000,
    "x86_shared_cache_size": 0x100000,
    "x86_non_temporal_threshold": 0xC0000,
    "x86_rep_movsb_threshold": 0x800,
    "x86_rep_stosb_threshold": 0x800,
}
PLAIN_CPU = {
    "GLIBC_TUNABLES": ":".join(
        [
            f"glibc.cpu.hwcaps={','.join(f'-{name}' for name in _FEATURES)}",
            *(f"glibc.cpu.{name}={value}" for name, value in _CACHES.items()),
        ]
    ),
    "GODEBUG": "cpu.all=off",
    "OPENSSL_ia32cap": "~0xfffffffff8740400:~0xffffffffffffffff",  # what is not to be used
}
# Go's sweeper may loop until another thread has swept (golang/go#73499). While time stands that thread does
# not run, so programs collect garbage only when they have this much.
_RARE_GARBAGE_COLLECTION = {"GOGC": "off", "GOMEMLIMIT": "64MiB"}
ENVIRONMENT = PLAIN_CPU | _RARE_GARBAGE_COLLECTION  # of all programs
