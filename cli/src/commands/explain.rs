//! `sealcast explain CODE`: what an error means and what to do about it.

use clap::Args;
use sealcast::code::Code;
use serde_json::json;

use super::Env;
use crate::advice::advice;
use crate::hint::Failure;

/// What an error code means, and what to do
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sealcast explain E0412")]
pub(crate) struct Explain {
    /// E0412, or 412; without it, all codes
    code: Option<String>,
}

impl Explain {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let Some(text) = self.code else {
            return Code::ALL.iter().try_for_each(|code| {
                env.output.object(&object(*code))?;
                env.output.line(format!("{code}  {}", code.title()))
            });
        };
        let number = text.trim_start_matches(['E', 'e']).parse().ok();
        let Some(code) = number.and_then(Code::of_number) else {
            let failure = Failure::new(Code::BadValue, format!("there is no error code '{text}'"));
            return Err(failure.hint("sealcast explain lists all codes"));
        };
        env.output.object(&object(code))?;
        env.output.line(format!("{code}: {}\n\n{}\n\nexit code {}", code.title(), advice(code), code.exit()))
    }
}

fn object(code: Code) -> serde_json::Value {
    json!({ "code": code.to_string(), "title": code.title(), "advice": advice(code), "exit": code.exit() })
}
