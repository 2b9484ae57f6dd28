// Counts words in threads that hand their results over: every map, string and vector comes from cpuslab.
use std::collections::HashMap;
use std::thread;

#[global_allocator]
static ALLOCATOR: cpuslab::Cpuslab = cpuslab::Cpuslab;

fn count(seed: usize) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for i in 0..100_000 {
        *counts.entry(format!("word {}", (i * seed) % 1009)).or_default() += 1;
    }
    counts
}

fn main() {
    let workers: Vec<_> = [7919, 104_729, 15_485_863].map(|seed| thread::spawn(move || count(seed))).into();
    let mut total: HashMap<String, usize> = HashMap::new();
    for worker in workers {
        for (word, number) in worker.join().unwrap() {
            *total.entry(word).or_default() += number;
        }
    }
    let sum: usize = total.values().sum();
    println!("{} words, {sum} in all, by cpuslab {} ({:?})", total.len(), cpuslab::version(), cpuslab::vcpu_mode());
    assert_eq!((total.len(), sum), (1009, 300_000));
}
