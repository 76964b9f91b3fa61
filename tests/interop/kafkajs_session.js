// One session of kafkajs: create a topic, produce to it, read its offsets, delete another. Prints what it saw as JSON.
const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, codec, countText] = process.argv.slice(2)
const count = Number(countText)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.ERROR })

async function administer(admin) {
  const spare = `${topic}-spare`
  const created = await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 2 }, { topic: spare }] })
  await admin.createPartitions({ topicPartitions: [{ topic: spare, count: 3 }] })
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: 2, name: spare, configEntries: [{ name: 'retention.ms', value: '4321' }] }],
  })
  const configs = await admin.describeConfigs({
    resources: [{ type: 2, name: spare, configNames: ['retention.ms'] }],
    includeSynonyms: false,
  })
  const metadata = await admin.fetchTopicMetadata({ topics: [spare] })
  await admin.deleteTopics({ topics: [spare] })
  return {
    created,
    partitions: metadata.topics[0].partitions.length,
    retention: configs.resources[0].configEntries[0].configValue,
    listed: (await admin.listTopics()).includes(topic),
  }
}

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const messages = Array.from({ length: count }, (_, n) => ({
    key: `k${n}`, value: `value ${n}`, partition: n % 2, headers: { n: String(n) }, timestamp: String(1000000 + n),
  }))
  const answers = []
  for (let start = 0; start < count; start += 50) {
    const batch = messages.slice(start, start + 50)
    answers.push(await producer.send({ topic, acks: -1, compression: CompressionTypes[codec], messages: batch }))
  }
  await producer.disconnect()
  return answers.flat().map(({ partition, errorCode, baseOffset }) => ({ partition, errorCode, baseOffset }))
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  const administered = await administer(admin)
  const produced = await produce()
  const offsets = await admin.fetchTopicOffsets(topic)
  const atTime = await admin.fetchTopicOffsetsByTimestamp(topic, 1000010)
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '2' }] })
  const cluster = await admin.describeCluster()
  await admin.disconnect()
  console.log(JSON.stringify({ administered, produced, offsets, atTime, brokers: cluster.brokers }))
}

main().catch((error) => { console.error(error); process.exit(1) })
