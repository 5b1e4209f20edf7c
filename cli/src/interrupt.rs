//! A clean end: the first Ctrl-C (or SIGTERM, SIGHUP) asks, the second one insists.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Catches the signals that ask a program to end.
pub(crate) fn install() {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Refused for signals that no program may catch; none of these is.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, asked.clone());
        let _ = signal_hook::flag::register(signal, asked.clone());
    }
}

/// Is asked to end when standard input closes, too: with the process that started this one, however that ended.
pub(crate) fn when_stdin_closes() {
    let asked = flag();
    // The thread ends with the process.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        asked.store(true, Ordering::Release);
    });
}

/// Whether we were asked to end.
pub(crate) fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}

/// What is set once we were asked to end.
pub(crate) fn flag() -> Arc<AtomicBool> {
    ASKED.get_or_init(Arc::default).clone()
}

/// How the program ends if nothing else is to be said.
pub(crate) fn exit_code() -> ExitCode {
    ExitCode::from(if asked() { 130 } else { 0 })
}
