-- Nodes show that they are alive, by the clock of the server.
--
-- After a time in which nobody could, everybody gets the time again that a node has to show itself: not the first who comes
-- back buries all others.
-- KEYS: nodes, the pulse of all, then keys that are wanted for as long as anybody lives.
-- ARGV: how long a node may be silent, how long to keep this, nodes.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call('HGET', KEYS[2], 'last') or '0')
-- A server that is full refuses what takes memory, unless the script has written before: nobody is dead for want of memory.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if now - last > ARGV[1] / 2 then redis.call('HSET', KEYS[2], 'since', now) end
redis.call('HSET', KEYS[2], 'last', now)
for at = 3, #ARGV do redis.call('ZADD', KEYS[1], now, ARGV[at]) end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
return 1
