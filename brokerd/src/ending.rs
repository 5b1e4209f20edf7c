//! When a broker's process is asked to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// Becomes true at SIGINT or SIGTERM, and, if wanted, when standard input closes: with whoever started the process,
/// however that one ended. A second signal ends the process at once.
///
/// # Errors
/// [`Failure::Config`] if signals cannot be heard.
pub fn asked(until_stdin_closes: bool) -> Result<Arc<AtomicBool>, Failure> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register_conditional_shutdown(signal, 130, end.clone())
            .and_then(|_| signal_hook::flag::register(signal, end.clone()));
        registered.map_err(|e| Failure::Config(format!("signals cannot be heard: {e}")))?;
    }
    if until_stdin_closes {
        let end = end.clone();
        // The thread ends with the process.
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            end.store(true, Ordering::Release);
        });
    }
    Ok(end)
}
