//! A robot publishes its pose twenty times a second, and prints everybody's.
//!
//! ```console
//! $ cargo run --example robot                                               # alone, in memory, nothing sealed
//! $ cargo run --example robot -- 'udpm://239.255.76.67:7667?ttl=1' robot7   # sealed, after `sealcast init` or `join`
//! ```

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use sealcast::Origin;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "mem:fleet?keys=plain".to_owned());
    let name = args.next();
    let mut opening = sealcast::open(&url);
    if let Some(name) = &name {
        opening = opening.identity(name.as_str());
    }
    let robot = opening.wait()?;
    let mut poses = robot.subscribe("pose/+").wait()?;
    robot.ready().wait()?; // a key is agreed

    let topic = format!("pose/{}", name.as_deref().unwrap_or("robot"));
    for step in 0..20 {
        let angle = f64::from(step) / 10.0;
        let pose = format!("{:.2} {:.2}", angle.cos(), angle.sin());
        robot.publish(&topic, pose).wait()?;
        // What has come meanwhile; a control loop waits for nobody.
        while let Some(message) = poses.try_next()? {
            let sender = match message.origin() {
                Origin::Signed(member) | Origin::Claimed(member) => member.name.to_string(),
                _ => "somebody".to_owned(),
            };
            println!("{} from {sender}: {}", message.topic(), String::from_utf8_lossy(message.payload()));
        }
        sleep(Duration::from_millis(50));
    }
    robot.close();
    Ok(())
}
