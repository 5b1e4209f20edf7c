//! Messages from process to process over loopback multicast, without keys.

use crate::common::{Home, free_port};

fn url() -> String {
    format!("udpm://239.255.76.67:{}?ttl=0&keys=plain", free_port())
}

#[test]
fn every_form_of_message_arrives_as_it_was_sent() {
    let (home, url) = (Home::new("plain"), url());
    let mut sub = home.start(&["sub", "#", "--url", &url, "-v", "-C", "4", "--format", "%i %t %l %p"]);
    sub.line_with("epoch 1").unwrap();
    home.good(&["pub", "a/b", "{\"hr\":72}", "--url", &url]);
    let frame: String = (0..100_000).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
    std::fs::write(home.path().join("frame"), &frame).unwrap();
    home.good(&["pub", "camera", "-f", "frame", "--url", &url]);
    let mut lines = home.command(&["pub", "log", "-l", "--url", &url]);
    lines.stdin(std::fs::File::open(write(&home, "lines", "one\ntwo\n")).unwrap());
    assert!(lines.output().unwrap().status.success());
    let (exit, said) = sub.end();
    assert_eq!(exit, 0);
    for line in ["1 a/b 9 {\"hr\":72}", &format!("2 camera 100000 {frame}"), "3 log 3 one", "4 log 3 two"] {
        assert!(said.lines().any(|l| l == line), "{} is missing in:\n{said}", &line[..line.len().min(40)]);
    }
}

#[test]
fn lines_end_with_the_one_that_failed() {
    let (home, url) = (Home::new("failed-line"), url());
    let mut lines = home.command(&["pub", "log", "-l", "--url", &url]);
    let long = vec![b'x'; (64 << 20) + 1];
    let all = [b"one\ntwo\n".as_slice(), &long, b"\nfour\n"].concat();
    lines.stdin(std::fs::File::open(write(&home, "lines", all)).unwrap());
    let ran = lines.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("line 3 of stdin: "), "{said}");
}

#[test]
fn ctrl_c_ends_a_subscriber_cleanly() {
    let (home, url) = (Home::new("ctrl-c"), url());
    let mut sub = home.start(&["sub", "#", "--url", &url, "-v"]);
    sub.line_with("epoch 1").unwrap();
    sub.interrupt();
    assert_eq!(sub.end().0, 130);
}

#[test]
fn json_is_one_object_a_line() {
    let (home, url) = (Home::new("json"), url());
    let mut sub = home.start(&["sub", "x/+", "--url", &url, "-v", "-C", "2", "--json"]);
    sub.line_with("epoch 1").unwrap();
    home.good(&["pub", "y/no", "not asked for", "--url", &url]);
    home.good(&["pub", "x/text", "hello", "--url", &url]);
    home.good(&["pub", "x/bytes", "-f", write(&home, "bytes", [0xff, 0, 1]).to_str().unwrap(), "--url", &url]);
    let (exit, said) = sub.end();
    assert_eq!(exit, 0);
    let objects: Vec<serde_json::Value> = said.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    assert_eq!((&objects[0]["payload"], &objects[0]["topic"]), (&"hello".into(), &"x/text".into()));
    assert_eq!(objects[1]["payload_base64"], "/wAB");
    assert_eq!(objects[1]["origin"], "anonymous");
    assert_eq!(objects.len(), 2);
}

#[test]
fn what_multicast_does_not_give_is_refused_before_anything_is_sent() {
    let (home, url) = (Home::new("not-given"), url());
    let mut sub = home.start(&["sub", "#", "--url", &url, "-v", "-C", "1"]);
    sub.line_with("epoch 1").unwrap();
    for asked in ["--fifo", "--ordered", "--safe"] {
        let ran = home.run(&["pub", "a/b", "body", asked, "--url", &url]);
        assert_eq!(ran.exit, 3, "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("multicast does not give {asked}")), "{}", ran.stderr);
        assert!(ran.stderr.contains("quorum:cluster.toml"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("keys=plain: everything"), "it came so far as to open a session: {}", ran.stderr);
    }
    home.good(&["pub", "a/b", "the only one", "--url", &url]);
    let (_, said) = sub.end();
    assert!(said.contains("the only one"), "{said}");
}

#[test]
fn a_context_that_is_not_stored_is_not_reported() {
    let home = Home::new("ctx-full");
    home.good(&["ctx", "add", "one", "--url", "mem:x"]);
    // A file may not grow at all, as on a full disk.
    let lines = [&["ctx", "add", "two", "--url", "mem:y"][..], &["ctx", "select", "one"], &["ctx", "rm", "one"]];
    for line in lines {
        let ran = home.run_on_a_full_disk(line);
        assert_eq!(ran.exit, 1, "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("E0101"), "{}{}", ran.stdout, ran.stderr);
    }
    let kept = home.good(&["ctx", "ls"]);
    assert!(kept.contains("one") && !kept.contains("two"), "{kept}");
}

#[test]
fn a_certificate_that_ends_with_its_authority_says_so() {
    let mut home = Home::new("valid");
    home.good(&["ca", "init", "ward"]);
    let usual = home.run(&["ca", "issue", "ann"]);
    assert!(usual.exit == 0 && !usual.stderr.contains("with its authority"), "{}", usual.stderr);
    home.good(&["id", "new", "bob"]);
    let key = home.good(&["id", "export", "bob"]);
    home.word("BOB", &key);
    for line in
        ["ca issue eve --valid 100y", "ca issue bob --for $BOB --valid 100y", "invite --for $BOB --valid 100y -o -"]
    {
        let line = match line.starts_with("invite") {
            true => format!("--url 'udpm://239.255.76.67:7667?ttl=0' {line}"),
            false => line.to_owned(),
        };
        let ran = home.typed(&line);
        assert_eq!(ran.exit, 0, "{line}: {}", ran.stderr);
        let said = "with its authority, not on 21";
        assert!(ran.stderr.contains(said) && ran.stderr.contains("as --valid"), "{line}: {}", ran.stderr);
    }
}

fn write(home: &Home, name: &str, bytes: impl AsRef<[u8]>) -> std::path::PathBuf {
    let path = home.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}
