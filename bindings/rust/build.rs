// Finds the library: CPUSLAB_LIB_DIR (a build folder will do), else pkg-config; the shared one also by the linker's own path.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=CPUSLAB_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if let Some(folder) = env::var("CPUSLAB_LIB_DIR").ok().or_else(from_pkg_config) {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rerun-if-changed={folder}/libcpuslab.a");
    } else if env::var_os("CARGO_FEATURE_SHARED").is_none() {
        println!("cargo:warning=neither CPUSLAB_LIB_DIR nor pkg-config says where libcpuslab.a is");
    }
    if env::var_os("CARGO_FEATURE_SHARED").is_some() {
        println!("cargo:rustc-link-lib=dylib=cpuslab");
    } else {
        println!("cargo:rustc-link-lib=static=cpuslab");
    }
}

fn from_pkg_config() -> Option<String> {
    let output = Command::new("pkg-config").args(["--variable=libdir", "cpuslab"]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !folder.is_empty()).then_some(folder)
}
