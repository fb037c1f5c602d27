//! Says where the linker puts the recorder's code (`layout.ld`).

fn main() {
    println!("cargo:rerun-if-changed=layout.ld");
    // For memory in use only: a build that is run once for tests does without.
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        let dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bin=mitra=-Wl,-T,{dir}/layout.ld");
    }
}
