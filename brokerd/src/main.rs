//! `sealcast-broker`: one broker. Started by `sealcast brokers run`.

fn main() {}
