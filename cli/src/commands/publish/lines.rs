//! Lines of stdin as they come: one, or as many together as have come meanwhile.

use std::io::{self, BufRead, BufReader, ErrorKind, Read as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use sealcast_wire::limits;

use crate::hint::Failure;
use crate::interrupt;

/// See the module.
pub(super) struct Lines {
    come: Receiver<io::Result<Vec<u8>>>,
    /// What did not fit to those before.
    held: Option<io::Result<Vec<u8>>>,
}

impl Lines {
    pub(super) fn of_stdin() -> Lines {
        Lines::of(BufReader::new(io::stdin()))
    }

    /// Of what a thread of its own reads, some lines ahead.
    fn of(mut input: impl BufRead + Send + 'static) -> Lines {
        let (line, come) = sync_channel(READ_AHEAD);
        // It ends with the input or its first error, or with the first line that nobody takes.
        thread::spawn(move || {
            while let Some(it) = line_of(&mut input).transpose() {
                let failed = it.is_err();
                if line.send(it).is_err() || failed {
                    break;
                }
            }
        });
        Lines { come, held: None }
    }

    /// Waits for a line, and takes up to `most` that are there, as far as they fit into one publication. `None` at their
    /// end and on Ctrl-C.
    ///
    /// # Errors
    /// The input's.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        self.take(most).map_err(|e| Failure::system("stdin", &e))
    }

    fn take(&mut self, most: usize) -> io::Result<Option<Vec<Vec<u8>>>> {
        if interrupt::asked() {
            return Ok(None);
        }
        let Some(first) = self.held.take().or_else(|| self.wait()).transpose()? else { return Ok(None) };
        let mut room = ROOM.saturating_sub(first.len());
        let mut lines = vec![first];
        let until = Instant::now() + GATHERED;
        while lines.len() < most {
            match self.come.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Ok(line)) if line.len() + LENGTH <= room => {
                    room -= line.len() + LENGTH;
                    lines.push(line);
                }
                Ok(other) => {
                    self.held = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        Ok(Some(lines))
    }

    fn wait(&self) -> Option<io::Result<Vec<u8>>> {
        while !interrupt::asked() {
            match self.come.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                other => return other.ok(),
            }
        }
        None
    }
}

/// The next line without its end, `None` at the end of all. No more of one is kept than the longest message has.
fn line_of(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(limits::MESSAGE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    match line.last() {
        None => return Ok(None),
        Some(b'\n') => drop(line.pop()),
        Some(_) if line.len() > limits::MESSAGE_BYTES_MAX => {
            let most = limits::MESSAGE_BYTES_MAX;
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a line of more than {most} bytes")));
        }
        Some(_) => {}
    }
    Ok(Some(line))
}

/// Lines that are read before they are asked for.
const READ_AHEAD: usize = 4;
/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How long lines that come at once take to be read: little beside a publication.
const GATHERED: Duration = Duration::from_millis(2);
/// Bytes that lines sealed together add to their own, each.
const LENGTH: usize = 4;
/// Bytes for lines that are sealed together: a ciphertext takes less than 4 KB of its own.
const ROOM: usize = limits::BODY_BYTES_MAX - (4 << 10);

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::*;

    /// All that comes of this input, once all of it is there.
    fn taken(input: impl Read + Send + 'static, most: usize) -> Vec<io::Result<Vec<usize>>> {
        let mut lines = Lines::of(BufReader::new(input));
        let first = lines.wait();
        thread::sleep(Duration::from_millis(100));
        lines.held = first;
        std::iter::from_fn(|| lines.take(most).transpose())
            .map(|it| it.map(|lines| lines.iter().map(Vec::len).collect()))
            .collect()
    }

    #[test]
    fn lines_that_are_there_come_together() {
        let input = Cursor::new("a\nbb\n\nccc\n");
        let got: Vec<_> = taken(input.clone(), 3).into_iter().map(Result::unwrap).collect();
        assert_eq!(got, [vec![1, 2, 0], vec![3]]);
        assert_eq!(taken(input, 1).len(), 4);
    }

    #[test]
    fn what_does_not_fit_into_one_publication_is_the_next() {
        let mut input = vec![b'x'; ROOM - LENGTH];
        input.extend(b"\ny\nz\n");
        let got: Vec<_> = taken(Cursor::new(input), 9).into_iter().map(Result::unwrap).collect();
        assert_eq!(got, [vec![ROOM - LENGTH], vec![1, 1]]);
    }

    #[test]
    fn a_line_that_is_no_message_is_an_error_and_not_kept_whole() {
        let long = Cursor::new("a\n").chain(io::repeat(b'x').take(limits::MESSAGE_BYTES_MAX as u64 + 1));
        let got = taken(long, 1);
        assert_eq!(got[0].as_ref().unwrap(), &[1]);
        assert!(got.len() == 2 && got[1].as_ref().is_err_and(|e| e.to_string().contains("a line of more than")));
        assert!(taken(io::repeat(b'x'), 1)[0].is_err(), "it has no end");
    }

    #[test]
    fn lines_before_an_error_are_not_lost() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }
        let got = taken(Cursor::new("a\nb\n").chain(Fails), 9);
        assert_eq!(got[0].as_ref().unwrap(), &[1, 1]);
        assert!(got[1].as_ref().is_err_and(|e| e.to_string() == "the disk is gone"));
    }
}
