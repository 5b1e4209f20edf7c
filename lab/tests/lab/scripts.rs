//! Scripts that call other programs end as those programs do; the programs here are stand-ins.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with stand-ins for `cargo` and `go`, and a checkout for the script; it goes with the test.
struct Folder(PathBuf);

impl Folder {
    /// `cargo` is this shell script; `go` notes that it was called.
    fn new(name: &str, cargo: &str) -> Folder {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).expect("a folder");
        fs::create_dir_all(folder.join("checkout/go/tdh2/tdh2")).expect("a folder");
        let program = |name: &str, text: &str| {
            let path = folder.join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("it is written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be run");
        };
        program("cargo", cargo);
        program("go", &format!("cp \"$SEALCAST_TDH2_OUT\" '{}'", folder.join("given").display()));
        Folder(folder)
    }

    /// Runs `scripts/tdh2-go.sh` with the stand-ins.
    fn run(&self) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/tdh2-go.sh");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.arg(script).arg(self.0.join("checkout"));
        command.env("PATH", format!("{}:{path}", self.0.join("bin").display()));
        command.output().expect("a shell runs")
    }

    /// What `go` was given, if it was called.
    fn given(&self) -> Option<String> {
        fs::read_to_string(self.0.join("given")).ok()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover lies in the build folder and disturbs nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_script_for_go_ends_as_cargo_does() {
    let failing = Folder::new("script-fails", "echo '{'; echo '}'; exit 101");
    let ran = failing.run();
    assert_eq!((ran.status.code(), failing.given()), (Some(101), None), "{}", String::from_utf8_lossy(&ran.stderr));

    let silent = Folder::new("script-silent", "echo 'running 1 test'");
    let ran = silent.run();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.code() == Some(1) && said.contains("printed no data"), "{said}");
    assert_eq!(silent.given(), None);
}

#[test]
fn the_script_for_go_hands_on_what_the_test_printed() {
    let good =
        Folder::new("script-good", "echo 'running 1 test'; echo '{'; echo '  1'; echo '}'; echo 'test result: ok'");
    let ran = good.run();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(good.given().as_deref(), Some("{\n  1\n}\n"));
}
