// Builds the C sources that the crate carries, with the options of the library's CMakeLists.txt; or finds a library that is built:
// CPUSLAB_LIB_DIR (a build folder will do), and for the feature `shared` pkg-config or the linker's own path.
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources of the shared library alone.
const SHARED_ALONE: [&str; 3] = ["deepbind.c", "start_main.c", "system_call.c"];

fn main() {
    println!("cargo:rerun-if-env-changed=CPUSLAB_LIB_DIR");
    println!("cargo:rerun-if-changed=build.rs");
    let shared = env::var_os("CARGO_FEATURE_SHARED").is_some();
    let given = env::var("CPUSLAB_LIB_DIR").ok();
    check_target();
    if !shared && given.is_none() {
        return build();
    }
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if let Some(folder) = given.or_else(from_pkg_config) {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rerun-if-changed={folder}/libcpuslab.a");
    }
    println!("cargo:rustc-link-lib={}=cpuslab", if shared { "dylib" } else { "static" });
}

fn check_target() {
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let width = env::var("CARGO_CFG_TARGET_POINTER_WIDTH").unwrap_or_default();
    if system != "linux" || width != "64" {
        println!("cargo:warning=cpuslab runs on 64-bit Linux alone, and this target is {system} with {width} bits");
        std::process::exit(1);
    }
}

fn from_pkg_config() -> Option<String> {
    let output = Command::new("pkg-config").args(["--variable=libdir", "cpuslab"]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !folder.is_empty()).then_some(folder)
}

fn options() -> cc::Build {
    let mut build = cc::Build::new();
    build
        .std("gnu17")
        .opt_level(2)
        .pic(true)
        .warnings(false)
        .include("c/include")
        .include("c/src")
        .define("_GNU_SOURCE", None)
        .define("NDEBUG", None)
        .define("CPUSLAB_NO_CXX", None)
        .define("CPUSLAB_VERSION", format!("\"{}\"", env!("CARGO_PKG_VERSION")).as_str());
    for flag in [
        "-fno-lto",
        "-fvisibility=hidden",
        "-ftls-model=initial-exec",
        "-fno-builtin",
        "-fno-plt",
        "-ffunction-sections",
        "-fdata-sections",
        "-fno-stack-protector",
        "-fomit-frame-pointer",
    ] {
        build.flag(flag);
    }
    build.flag_if_supported("-fcf-protection=none").flag_if_supported("-fno-tree-loop-distribute-patterns");
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl") {
        build.include("c/src/libc/musl");
    }
    build.flag("-include").flag("c/src/libc/names.h");
    build
}

fn build() {
    let mut sources = Vec::new();
    for room in sorted(Path::new("c/src")) {
        sources.extend(sorted(&room).into_iter().filter(|file| {
            let name = file.file_name().unwrap_or_default();
            file.extension().map_or(false, |is| is == "c") && !SHARED_ALONE.iter().any(|other| name == *other)
        }));
        println!("cargo:rerun-if-changed={}", room.display());
    }
    println!("cargo:rerun-if-changed=c/include/cpuslab");
    // First on the linker's line is last built.  libc.a's own names once more, for a linker that takes no weak ones.
    for name in ["malloc", "free", "calloc", "realloc"] {
        options().define(&format!("NAME_{name}"), None).file("c/src/malloc/names/name.c").compile(&format!("cpuslab-{name}"));
    }
    options().files(sources).compile("cpuslab");
    println!("cargo:rustc-link-lib=pthread");
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default();
    paths.sort();
    paths
}
