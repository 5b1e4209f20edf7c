//! A member whose program was changed: it does all that a member does, but for one lie.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::{Address, Monotonic, Now};

use crate::member::{MemberCommand, MemberEvent};

/// A member's program.
pub(super) trait Program: Node<Event = MemberEvent, Command = MemberCommand> {}

impl<R: Node<Event = MemberEvent, Command = MemberCommand>> Program for R {}

/// What a changed program does otherwise than ours.
pub(super) trait Lies<R: Program> {
    /// A datagram came. Unless the lie is about that, the member takes it.
    fn hear(&mut self, now: Now, member: &mut Inside<R>, from: Address, datagram: &mut [u8]) {
        member.robot.handle(now, from, datagram);
    }

    /// The member did something: it happens if it is added to the member's effects.
    fn effect(&mut self, now: Now, member: &mut Inside<R>, effect: Effect<MemberEvent>);

    /// Its interval is over, if it has one.
    fn act(&mut self, _now: Now, _member: &mut Inside<R>) {}
}

/// The program that was changed, and what leaves it.
pub(super) struct Inside<R> {
    pub(super) robot: R,
    pub(super) effects: VecDeque<Effect<MemberEvent>>,
}

impl<R> Inside<R> {
    /// Sends a datagram to all.
    pub(super) fn send(&mut self, datagram: Vec<u8>) {
        self.effects.push_back(Effect::Send { to: Reach::All, datagram });
    }
}

/// See the module.
pub(super) struct Liar<R, L> {
    member: Inside<R>,
    lie: L,
    /// When it acts by itself next, and how long after that again.
    next: Option<(Monotonic, Duration)>,
}

impl<R: Program, L: Lies<R>> Liar<R, L> {
    /// It lies in what it says and hears.
    pub(super) fn new(robot: R, lie: L) -> Liar<R, L> {
        Liar { member: Inside { robot, effects: VecDeque::new() }, lie, next: None }
    }

    /// It acts by itself, too: at `first`, and once in each interval after that.
    pub(super) fn acting(robot: R, lie: L, first: Monotonic, every: Duration) -> Liar<R, L> {
        Liar { next: Some((first, every)), ..Liar::new(robot, lie) }
    }

    fn drain(&mut self, now: Now) {
        while let Some(effect) = self.member.robot.poll() {
            self.lie.effect(now, &mut self.member, effect);
        }
    }
}

impl<R: Program, L: Lies<R>> Node for Liar<R, L> {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        self.lie.hear(now, &mut self.member, from, datagram);
        self.drain(now);
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        self.member.robot.command(now, command);
        self.drain(now);
    }

    fn timeout(&self) -> Option<Monotonic> {
        [self.member.robot.timeout(), self.next.map(|(at, _)| at)].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Some((at, every)) = self.next
            && at <= now.monotonic
        {
            self.next = Some((now.monotonic + every, every));
            self.lie.act(now, &mut self.member);
        }
        self.member.robot.handle_timeout(now);
        self.drain(now);
    }

    fn stored(&mut self, now: Now) {
        self.member.robot.stored(now);
        self.drain(now);
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.member.effects.pop_front()
    }
}
