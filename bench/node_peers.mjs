// graphile-worker and pg-boss for `bench.peers`, configured for throughput as documented.
//
//     node bench/node_peers.mjs graphile-worker|pg-boss setup | enqueue COUNT BULK | single COUNT | send COUNT | work
//
// BENCH_MODULES is a directory in which both are installed, BENCH_DSN the database, BENCH_LATENCIES a file for pickup
// times. `enqueue` and `single` print their seconds. `send` sends an item for each line on standard input.
import { appendFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const require = createRequire(`${process.env.BENCH_MODULES}/`)
const load = name => import(pathToFileURL(require.resolve(name)))
const connectionString = process.env.BENCH_DSN
const [, , peer, command, ...numbers] = process.argv
const [count, bulk] = numbers.map(Number)

const arrived = sent => {
  if (sent) appendFileSync(process.env.BENCH_LATENCIES, `${Number(process.hrtime.bigint() - BigInt(sent)) / 1e6}\n`)
}

async function openGraphileWorker () {
  const { Logger, makeWorkerUtils, run, runMigrations } = await load('graphile-worker')
  const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message) })
  if (command === 'setup') return { setup: () => runMigrations({ connectionString, logger }) }
  if (command === 'work') {
    const worker = {
      concurrentJobs: 24, maxPoolSize: 10, pollInterval: 2000, preparedStatements: true, localQueue: { size: 500 },
      completeJobBatchDelay: 0, failJobBatchDelay: 0
    }
    return {
      work: async () => (await run({
        connectionString, logger, parsedCronItems: [], preset: { worker },
        taskList: { item: async payload => arrived(payload?.sent) }
      })).promise
    }
  }
  const utils = await makeWorkerUtils({ connectionString, logger })
  return {
    put: payload => utils.addJob('item', payload),
    putMany: payloads => utils.addJobs(payloads.map(payload => ({ identifier: 'item', payload })))
  }
}

async function openPgBoss () {
  const { PgBoss } = await load('pg-boss')
  const isWorker = command === 'work'
  const boss = new PgBoss({
    connectionString, max: 10, schedule: false, supervise: isWorker, migrate: command === 'setup',
    useListenNotify: isWorker
  })
  boss.on('error', error => console.error(error))
  await boss.start()
  const options = { batchSize: 500, localConcurrency: 4, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true }
  return {
    setup: () => boss.createQueue('item', { notify: true }),
    work: async () => {
      await boss.work('item', options, async jobs => jobs.forEach(job => arrived(job.data?.sent)))
      await new Promise(() => {})
    },
    put: payload => boss.send('item', payload),
    putMany: payloads => boss.insert('item', payloads.map(data => ({ data })))
  }
}

const queue = await (peer === 'pg-boss' ? openPgBoss() : openGraphileWorker())
const start = performance.now()
if (command === 'setup') await queue.setup()
if (command === 'work') await queue.work()
if (command === 'enqueue') {
  for (let sent = 0; sent < count; sent += bulk) await queue.putMany(Array.from({ length: bulk }, () => ({})))
}
if (command === 'single') for (let sent = 0; sent < count; sent++) await queue.put({})
if (command === 'send') {
  for await (const _ of createInterface({ input: process.stdin })) {
    await queue.put({ sent: String(process.hrtime.bigint()) })
  }
}
console.log((performance.now() - start) / 1e3)
process.exit()
