//! Three robots on a LAN, and everybody who should not be among them.

use std::process::Output;
use std::time::{Duration, Instant};

use super::eavesdropper::{Capture, Eavesdropper};
use super::member::Member;
use super::{Teller, broken, holds_within, program, starting};
use crate::commands::Env;
use crate::hint::Failure;
use crate::scene::Scene;
use crate::text::{bytes, duration, thousands};

/// Tells it all.
pub(super) fn run(env: &Env<'_>) -> Result<(), Failure> {
    let mut teller = Teller::new(env);
    let mut scene = Scene::new("robots")?;
    for name in NAMES {
        let evict: &[(&str, &str)] = if name == NAMES[0] { &[("both", "#"), ("evict", "#")] } else { &[("both", "#")] };
        scene.member(name, evict)?;
    }
    let folder = scene.folder().display();
    teller.tell(Ok(format!("an authority and {} have keys and certificates in {folder}", NAMES.join(", "))))?;

    let eavesdropper = Eavesdropper::listen(scene.address())?;
    let start = Instant::now();
    let mut robots = NAMES.iter().map(|n| Member::start(&scene, &scene.url(""), n)).collect::<Result<Vec<_>, _>>()?;
    teller.tell(agree(&robots, start))?;
    teller.tell(poses(&robots))?;
    let frame = frame();
    teller.tell(camera(&robots, &frame))?;
    teller.tell(ciphertext_only(&eavesdropper.end(), &frame))?;
    teller.tell(it_would_have_noticed(&frame))?;
    for outcome in outsiders(&scene, &robots)? {
        teller.tell(outcome)?;
    }
    let evicted = robots.pop().expect("there are three");
    teller.tell(evict(&robots, &evicted))?;
    teller.tell(reads_nothing(&robots, &evicted))?;
    evicted.stop();
    teller.tell(stays_out(&scene, &robots))?;
    robots.into_iter().for_each(Member::stop);
    teller.end();
    Ok(())
}

fn agree(robots: &[Member], start: Instant) -> Result<String, Failure> {
    let agreed = holds_within(TIMEOUT, || {
        let first = robots[0].epoch();
        first.is_some_and(|(_, n)| n == robots.len()) && robots.iter().all(|r| r.epoch() == first)
    });
    let took = duration(start.elapsed());
    match robots[0].epoch().filter(|_| agreed) {
        Some((epoch, n)) => {
            Ok(format!("they agree on a key with no server: epoch {epoch}, {n} members, {took} after the first start"))
        }
        None => Err(broken(format!("the robots did not agree on a key within {took}"))),
    }
}

/// A robot sends where it is.
fn pose(robot: &Member, number: usize) -> Result<(), Failure> {
    let angle = number as f64 / 10.0;
    let pose = format!(
        "{{\"robot\":\"{}\",\"n\":{number},\"x\":{:.3},\"y\":{:.3}}}",
        robot.name,
        10.0 * angle.cos(),
        10.0 * angle.sin()
    );
    robot.session.publish(&pose_topic(&robot.name), pose).wait()?;
    Ok(())
}

/// How many poses of another one it has received.
fn poses_of(robot: &Member, other: &str) -> usize {
    robot.got_of(other, &pose_topic(other))
}

fn pose_topic(robot: &str) -> String {
    format!("pose/{robot}")
}

/// A second of poses by all; every one must arrive at both others, with its origin proved.
fn poses(robots: &[Member]) -> Result<String, Failure> {
    let before: Vec<Vec<usize>> = robots.iter().map(|r| NAMES.iter().map(|n| poses_of(r, n)).collect()).collect();
    for number in 0..POSES {
        robots.iter().try_for_each(|r| pose(r, number))?;
        std::thread::sleep(Duration::from_millis(10));
    }
    let missing = || -> Option<String> {
        for (i, robot) in robots.iter().enumerate() {
            for (j, other) in robots.iter().enumerate().filter(|(j, _)| *j != i) {
                let got = poses_of(robot, &other.name) - before[i][j];
                if got < POSES {
                    return Some(format!("{} has {got} of {POSES} poses of {}", robot.name, other.name));
                }
            }
        }
        None
    };
    if holds_within(TIMEOUT, || missing().is_none()) {
        let all = POSES * robots.len();
        Ok(format!("{all} poses: each robot got every one of the others', each with a verified signature"))
    } else {
        Err(broken(missing().unwrap_or_else(|| "the demonstration was interrupted".to_owned())))
    }
}

fn camera(robots: &[Member], frame: &[u8]) -> Result<String, Failure> {
    let (front, others) = robots.split_first().expect("there are three");
    let start = Instant::now();
    front.session.publish(CAMERA, frame).wait()?;
    let arrived = |r: &Member| r.got().iter().any(|g| g.topic == CAMERA && g.payload == frame);
    if holds_within(TIMEOUT, || others.iter().all(arrived)) {
        let took = duration(start.elapsed());
        Ok(format!("a camera frame of {} arrived at both others bit by bit, {took} later", bytes(frame.len() as u64)))
    } else {
        Err(broken("the camera frame did not arrive at both others as it was sent"))
    }
}

fn ciphertext_only(capture: &Capture, frame: &[u8]) -> Result<String, Failure> {
    let known = ["pose/", "camera", "robot", "\"x\":", "P5 400 250"];
    let found = capture.texts(&known);
    if capture.bytes() < frame.len() {
        return Err(broken(format!("the eavesdropper took only {} from the network", bytes(capture.bytes() as u64))));
    }
    if !found.is_empty() || capture.has_part_of(frame) {
        return Err(broken(format!("the eavesdropper read plaintext: {found:?}, or a part of the frame")));
    }
    Ok(format!(
        "an eavesdropper took {} datagrams ({}) and found no pose, no pixel, no topic, no name: {} …",
        thousands(capture.datagrams() as u64),
        bytes(capture.bytes() as u64),
        capture.sample()
    ))
}

/// The same eavesdropper beside a group without keys: if it finds nothing here, its silence meant nothing.
fn it_would_have_noticed(frame: &[u8]) -> Result<String, Failure> {
    let scene = Scene::new("plain")?;
    let eavesdropper = Eavesdropper::listen(scene.address())?;
    let session = sealcast::open(&scene.url("&keys=plain")).wait()?;
    session.publish("pose/robot1", "{\"x\":1}").wait()?;
    session.publish(CAMERA, frame).wait()?;
    session.flush().wait()?;
    std::thread::sleep(Duration::from_millis(150));
    session.close();
    let capture = eavesdropper.end();
    if capture.texts(&["pose/robot1", "\"x\":"]).len() == 2 && capture.has_part_of(frame) {
        Ok("the same eavesdropper reads all of it where keys=plain: it would have noticed".to_owned())
    } else {
        Err(broken("the eavesdropper finds nothing even where everything is in clear"))
    }
}

/// Real processes: one with another authority's certificate and even our group's name and bootstrap key, one
/// without any. Both listen and send while the robots go on.
fn outsiders(scene: &Scene, robots: &[Member]) -> Result<[Result<String, Failure>; 2], Failure> {
    let mut impostor = scene.impostor()?;
    impostor.member(MALLORY, &[("both", "#")])?;
    impostor.steal_bootstrap_key(scene, MALLORY)?;
    let before = robots[0].epoch();
    let counts: Vec<usize> = robots.iter().map(|r| r.got().len()).collect();

    let home = impostor.folder().display().to_string();
    let sealed = ["--url", &scene.url(""), "--id", MALLORY];
    let plain = ["--url", &scene.url("&keys=plain")];
    let listen = ["sub", "#", "--json", "-q", "-W", "1500ms"];
    let mut running = vec![];
    for who in [&sealed[..], &plain[..]] {
        running.push(program(&home, &[&listen[..], who].concat())?.spawn().map_err(starting)?);
    }
    let mut sent = 0;
    let until = Instant::now() + Duration::from_millis(1200);
    let lies = ["pub", "pose/robot1", "{\"robot\":\"robot1\",\"x\":666}", "-q"];
    let mut lied = program(&home, &[&lies[..], &plain[..]].concat())?.spawn().map_err(starting)?;
    while Instant::now() < until {
        robots.iter().try_for_each(|r| pose(r, POSES + sent))?;
        sent += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    // Whether it could send is its own business; what arrived is looked at below.
    let _ = lied.wait();
    let heard: Vec<Output> =
        running.into_iter().map(|c| c.wait_with_output().map_err(starting)).collect::<Result<_, _>>()?;
    // One process at a time may run with Mallory's certificate: it lies when it has listened.
    let _ = program(&home, &[&lies[..], &sealed[..]].concat())?.output().map_err(starting)?;
    let undisturbed = robots.iter().all(|r| r.epoch() == before);
    let lies_heard = robots
        .iter()
        .zip(&counts)
        .any(|(r, n)| r.got()[*n..].iter().any(|g| g.payload.windows(3).any(|w| w == b"666")));
    let judge = |who: &str, output: &Output| {
        // Outsiders may hear each other's lies; what counts is what they hear of the robots.
        let said = String::from_utf8_lossy(&output.stdout);
        let messages = said.lines().filter(|l| !l.contains("666")).count();
        if messages > 0 {
            Err(broken(format!("{who} heard {messages} messages")))
        } else if lies_heard {
            Err(broken("a robot took an outsider's message for a robot's"))
        } else if !undisturbed {
            Err(broken(format!("{who} changed the group: {before:?} before, {:?} now", robots[0].epoch())))
        } else {
            Ok(format!("{who} is refused: it heard 0 of {} messages, its own reached nobody", sent * robots.len()))
        }
    };
    let with = "an outsider with another authority's certificate and our group's bootstrap key";
    Ok([judge(with, &heard[0]), judge("an outsider without a certificate", &heard[1])])
}

fn evict(robots: &[Member], out: &Member) -> Result<String, Failure> {
    let report = robots[0].session.evict(out.name.as_str(), "lost").wait()?;
    let n = robots.len();
    let agreed = holds_within(TIMEOUT, || robots.iter().all(|r| r.epoch() == Some((report.to.counter, n))));
    if !agreed || report.on_new_key != report.members {
        return Err(broken(format!("after the eviction {}/{} members are on the new key", report.on_new_key, n)));
    }
    Ok(format!(
        "{} evicts {}: epoch {} → {}, {}/{} members on the new key after {}",
        robots[0].name,
        out.name,
        report.from.counter,
        report.to.counter,
        report.on_new_key,
        report.members,
        duration(report.elapsed)
    ))
}

/// The evicted one's session is still running and on the network.
fn reads_nothing(robots: &[Member], out: &Member) -> Result<String, Failure> {
    let (before, epoch) = (out.got().len(), robots[0].epoch().map_or(0, |(e, _)| e));
    let theirs = poses_of(&robots[1], &robots[0].name);
    for number in 0..POSES {
        robots.iter().try_for_each(|r| pose(r, 2 * POSES + number))?;
        std::thread::sleep(Duration::from_millis(5));
    }
    let arrived = holds_within(TIMEOUT, || poses_of(&robots[1], &robots[0].name) >= theirs + POSES);
    let read = out.got()[before..].iter().filter(|g| g.epoch >= epoch).count();
    match (arrived, read) {
        (false, _) => Err(broken("the robots that stayed do not hear each other any more")),
        (true, 0) => Ok(format!("{} still listens and reads 0 of {} new poses", out.name, POSES * robots.len())),
        (true, n) => Err(broken(format!("{} was evicted and read {n} messages", out.name))),
    }
}

/// The evicted one starts again, with the same certificate.
fn stays_out(scene: &Scene, robots: &[Member]) -> Result<String, Failure> {
    let before = robots[0].epoch();
    let home = scene.folder().display().to_string();
    let arguments = ["sub", "#", "--json", "-q", "-W", "1500ms", "--url", &scene.url(""), "--id", NAMES[2]];
    let mut again = program(&home, &arguments)?.spawn().map_err(starting)?;
    let mut number = 0;
    while again.try_wait().map_err(starting)?.is_none() {
        robots.iter().try_for_each(|r| pose(r, 3 * POSES + number))?;
        number += 1;
        std::thread::sleep(Duration::from_millis(10));
        if number > RESTART_STEPS_MAX || crate::interrupt::asked() {
            again.kill().map_err(starting)?;
        }
    }
    let output = again.wait_with_output().map_err(starting)?;
    let messages = output.stdout.iter().filter(|b| **b == b'\n').count();
    if messages > 0 || robots.iter().any(|r| r.epoch() != before) {
        return Err(broken(format!("{} came back: it read {messages} messages", NAMES[2])));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let errors = said.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let error = errors.filter_map(|e| e["error"]["message"].as_str().map(str::to_owned)).next_back();
    let said = error.unwrap_or_else(|| "it got no key".to_owned());
    Ok(format!("{} starts again with its old certificate and stays out ({said})", NAMES[2]))
}

/// A picture in grey, 400 × 250: a gradient with noise, so that no part of it occurs twice.
fn frame() -> Vec<u8> {
    let mut frame = b"P5 400 250 255\n".to_vec();
    let mut noise: u32 = 1;
    for i in 0..100_000_u32 {
        // xorshift32 (Marsaglia, 2003): any noise will do.
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        frame.push((i % 400 * 200 / 400 + noise % 56) as u8);
    }
    frame
}

const NAMES: [&str; 3] = ["robot1", "robot2", "robot3"];
const MALLORY: &str = "mallory";
const CAMERA: &str = "camera/front";
/// Poses of each robot in a stream.
const POSES: usize = 100;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Steps of 10 ms after which a restarted process is ended.
const RESTART_STEPS_MAX: usize = 800;
