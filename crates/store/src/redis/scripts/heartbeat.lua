-- Records the heartbeat of nodes, by the clock of the server.
--
-- If no node could send heartbeats for a while, every node gets the full time again (`since`).
-- Otherwise the first node that reaches the server again would reap all others.
-- KEYS: nodes, pulse, then keys that must live as long as any node does.
-- ARGV: how long a node may be without a heartbeat, time to live of the keys, nodes.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call('HGET', KEYS[2], 'last') or '0')
-- A full server refuses commands that take memory, unless the script has written before. So this
-- comes first: no node must count as dead because the server is full.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if now - last > ARGV[1] / 2 then redis.call('HSET', KEYS[2], 'since', now) end
redis.call('HSET', KEYS[2], 'last', now)
for at = 3, #ARGV do redis.call('ZADD', KEYS[1], now, ARGV[at]) end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
return 1
