#!/bin/bash
# node: worker threads that come and go, buffers of many sizes, JSON, zlib, crypto, streams, child processes.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs node

cat >"$scratch/work.js" <<'JS'
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib');
const crypto = require('crypto');
const { execFileSync } = require('child_process');
const digest = (data) => crypto.createHash('sha256').update(data).digest('hex').slice(0, 16);

// A reproducible sequence in place of Math.random().
function sequence(seed) {
	let state = seed >>> 0;
	return (bound) => {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		return state % bound;
	};
}

function buffers(seed) {
	const next = sequence(seed);
	const live = new Array(256).fill(null);
	const sum = crypto.createHash('sha256');
	for (let i = 0; i < 6000; i++) {
		const slot = next(live.length);
		if (live[slot]) {
			const { data, stamp } = live[slot];
			for (let at = 0; at < data.length; at += 97)
				if (data[at] !== stamp)
					throw new Error(`buffer ${slot} was overwritten`);
			sum.update(data.subarray(0, 64));
		}
		const size = 1 + next(i % 50 === 0 ? 1 << 20 : 8192);
		const stamp = next(256);
		live[slot] = { data: i % 2 ? Buffer.alloc(size, stamp) : Buffer.allocUnsafeSlow(size).fill(stamp), stamp };
	}
	return sum.digest('hex').slice(0, 16);
}

function json(seed) {
	const next = sequence(seed);
	const records = [];
	for (let i = 0; i < 4000; i++)
		records.push({ id: i, name: 'name ' + next(1000), tags: Array.from({ length: next(8) }, () => 't' + next(50)) });
	const text = JSON.stringify(records);
	return digest(JSON.stringify(JSON.parse(text))) + digest(zlib.gunzipSync(zlib.gzipSync(text)));
}

if (!isMainThread) {
	parentPort.postMessage([workerData, buffers(workerData), json(workerData)].join(' '));
} else {
	(async () => {
		console.log('main', buffers(1), json(1));
		for (let round = 0; round < 4; round++) {
			const lines = await Promise.all([0, 1, 2, 3].map((i) => new Promise((resolve, reject) => {
				const worker = new Worker(__filename, { workerData: 10 * round + i });
				worker.on('message', resolve);
				worker.on('error', reject);
			})));
			console.log(lines.join('\n'));
		}
		// The thread pool of libuv.
		const text = Buffer.alloc(1 << 20, 'cpuslab ');
		const packed = await Promise.all([...Array(8).keys()].map((i) => new Promise((resolve, reject) =>
			zlib.deflate(text.subarray(i * 1000), (error, data) => (error ? reject(error) : resolve(data))))));
		console.log(packed.map((data, i) => zlib.inflateSync(data).length + i).join(' '));
		const keys = await Promise.all([1, 2, 3, 4].map((i) => new Promise((resolve, reject) =>
			crypto.pbkdf2('secret', 'salt' + i, 2000, 32, 'sha256', (error, key) => (error ? reject(error) : resolve(key))))));
		console.log(digest(Buffer.concat(keys)));
		for (let i = 0; i < 5; i++)
			console.log(execFileSync('/bin/echo', ['child', String(i)]).toString().trim());
		console.log(execFileSync(process.execPath, ['-e', 'console.log([..."cpuslab"].reverse().join(""))']).toString().trim());
	})();
}
JS

prove_bound node -e 0
preloaded node -e '
	if (!require("fs").readFileSync("/proc/self/maps", "latin1").includes(process.argv[1])) process.exit(1);
' "$library" || fail "the library is not mapped in node"
in_both work node "$scratch/work.js"
[ "$(wc -l <"$scratch/preload.work.out")" -ge 20 ] || fail "node said too little"
